"""Reductions whose threads read all where it lies, each for neighbouring results."""

from __future__ import annotations

from tvm import tirx
from tvm.ir import Var
from tvm.tirx import ForKind

from backends.cuda.kernels.launch import bound_loop
from backends.cuda.kernels.pointwise.emit import THREADS, widest_run
from backends.cuda.kernels.reductions.read import Reduction
from backends.cuda.kernels.reductions.results import accumulate, add_loops, store_results
from backends.cuda.kernels.registers import ACCESS_BYTES, Lanes, register
from backends.tensorir.accesses import unravel
from backends.tensorir.emit import Nest
from backends.tensorir.flat_buffers import store_flat
from backends.tensorir.inlining import guards
from backends.tensorir.stages import dtype_of, item_bytes_of, loads


def emit_in_place(reduction: Reduction) -> tirx.Stmt:
    """Return the loops, bound to blocks and threads.

    ```
    for block, thread in T.grid(ceil(vectors / 256), 256):      # blockIdx.x, threadIdx.x
        vector = block * 256 + thread
        if vector < elements // 4:
            sums[0:4] = 0
            for y, x in T.grid(3, 3):
                a[0:4] = image[..., channel : channel + 4]
                for lane in T.unroll(4): sums[lane] = sums[lane] + a[lane] * w[y, x, channel + lane]
            output[vector * 4 : vector * 4 + 4] = epilogue(sums, ...)
    ```
    """
    many = lanes_of(reduction)
    nest, vectors = Nest(), reduction.results // many
    with (
        bound_loop(nest, "blockIdx.x", -(-vectors // THREADS)) as block,
        bound_loop(nest, "threadIdx.x", THREADS) as thread,
    ):
        at = block * THREADS + thread
        with nest.when(at < vectors):
            vector = nest.bind("vector", at)
            lanes = Lanes(Var("lane", "int64"), many, ((vector, vectors),))
            _add_thread(nest, reduction, vector, lanes)
    return nest.finish()


def lanes_of(reduction: Reduction) -> int:
    """Return how many neighbours a thread has: as many as one access brings, if they divide the innermost axis, or the
    results where nothing is read in branches, which lanes may take apart."""
    stage, epilogue = reduction.stage, reduction.epilogue
    read = max(item_bytes_of(load.source) for load in loads(reduction.inlined.value))
    many = ACCESS_BYTES // max(read, item_bytes_of(stage.buffer))
    if epilogue is not None:
        many = min(widest_run(epilogue, (stage.buffer,)), ACCESS_BYTES // read)
    innermost = next((int(axis.extent) for axis in reversed(stage.spatial) if axis.extent != 1), 1)
    extent = innermost if guards(stage.value) or epilogue is not None else reduction.results
    while extent % many:
        many //= 2
    return many


def _add_thread(nest: Nest, reduction: Reduction, vector: Var, lanes: Lanes) -> None:
    """Add what a thread does for its neighbouring results."""
    stage, begin = reduction.stage, vector * lanes.many
    results = register(nest, "reduced", lanes.many, dtype_of(stage.buffer))
    with nest.run("lane", lanes.many, ForKind.UNROLLED) as lane:
        nest.add(store_flat(results, lane, stage.identity))
    reduced = [(Var(f"r{at}", "int64"), int(axis.extent)) for at, axis in enumerate(stage.reduce)]
    ranged = Lanes(lanes.var, lanes.many, (*lanes.ranges, *reduced))
    own = unravel(begin + lanes.var, [axis.extent for axis in stage.spatial])
    with nest.apart() as turn:
        accumulate(nest, reduction, results=results, lanes=ranged, at=(*own, *(var for var, _ in reduced)))
    add_loops(nest, reduced, turn)
    store_results(reduction, nest, begin, lanes, results)
