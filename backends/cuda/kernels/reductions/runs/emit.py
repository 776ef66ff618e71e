"""The loops of a reduction of which blocks bring what they read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from tvm import tirx
from tvm.ir import Var

from backends.cuda.kernels.inlined import plain_load
from backends.cuda.kernels.launch import bound_loop
from backends.cuda.kernels.reductions.results import accumulate, add_loops, store_results
from backends.cuda.kernels.reductions.runs.bring import BroughtRun, allocate, bring_turn, bring_whole
from backends.cuda.kernels.reductions.runs.plan import ReductionRuns
from backends.cuda.kernels.registers import Lanes, register
from backends.tensorir.accesses import flat_index, unravel
from backends.tensorir.emit import Expr, Nest, guard, int64
from backends.tensorir.stages import dtype_of, shape_of


def emit_runs(runs: ReductionRuns) -> tirx.Stmt:
    """Return the loops, bound to blocks and threads; a thread has one result.

    ```
    for block, thread in T.grid(ceil(results / 256), 256):
        at = block * 256 + thread                                       # from where a sector of the output begins
        sum = 0
        for y in range(3):                                              # the outer reduced axes
            barrier; start_run(shared, image, ...); wait; barrier       # what all results of the block read there
            if at < results:
                for x in range(3): sum = sum + shared[...]
        if at < results: output[at] = epilogue(sum, ...)
    ```
    """
    reduction, nest = runs.reduction, Nest()
    with (
        bound_loop(nest, "blockIdx.x", -(-reduction.results // runs.of_block)) as block,
        bound_loop(nest, "threadIdx.x", runs.threads) as thread,
    ):
        begin, shared = nest.bind("begin", block * runs.of_block), allocate(nest, runs)
        held = bring_whole(nest, runs, thread)
        at = nest.bind("at", begin - tirx.floormod(begin, int64(runs.aligned)) + thread)
        results = register(nest, "reduced", 1, dtype_of(reduction.stage.buffer))
        nest.store(results, [int64(0)], reduction.stage.identity)
        ends = (begin, tirx.min(begin + runs.of_block, int64(reduction.results)) - 1)
        is_whole = runs.threads == runs.of_block and reduction.results % runs.of_block == 0
        is_one = None if is_whole else tirx.And(at >= ends[0], at <= ends[1])
        with _each_turn(nest, runs) as turn:
            brought = bring_turn(nest, runs, shared, results=ends, reduced=turn, thread=thread)
            with guard(nest, is_one):
                _reduce_turn(nest, runs, at, turn=turn, brought={**held, **brought}, results=results)
        with guard(nest, is_one):
            lanes = Lanes(Var("lane", "int64"), 1, ((at, reduction.results),))
            store_results(reduction, nest, at, lanes, results, held=held)
    return nest.finish()


@contextmanager
def _each_turn(nest: Nest, runs: ReductionRuns) -> Iterator[tuple[Expr, ...]]:
    """Open the loops over the runs of a block: the outer reduced indices, and the first of a run."""
    with ExitStack() as loops:
        outer = [loops.enter_context(nest.run(f"r{at}", runs.reduced[at])) for at in range(runs.outer)]
        turn = loops.enter_context(nest.run("turn", runs.turns))
        yield (*outer, nest.bind("first", turn * runs.turn))


def _reduce_turn(
    nest: Nest, runs: ReductionRuns, at: Var, *, turn: tuple[Expr, ...], brought: Mapping[Var, BroughtRun],
    results: Var,
) -> None:  # fmt: skip
    """Add the loops over what is reduced of a run.

    Args:
        at: Position of the thread's result.
        turn: See `_each_turn`.
        brought: What is in shared memory.
        results: Registers.
    """
    *outer, first = turn
    extent, *inner_extents = runs.reduced[runs.outer :]
    own, lane = Var("own", "int64"), Var("lane", "int64")
    inner = [(Var(f"r{runs.outer + 1 + place}", "int64"), size) for place, size in enumerate(inner_extents)]
    ranges = [(at, runs.reduction.results), *zip(outer, runs.reduced, strict=False), (own, runs.turn), *inner]
    lanes = Lanes(lane, 1, ranges)
    analyzer = lanes.analyzer()

    def place(buffer: Var, indices: Sequence[Expr]) -> Expr:
        if buffer in brought:
            return brought[buffer].element(flat_index(shape_of(buffer), indices, analyzer), at)
        return plain_load(buffer, indices)

    indices = (*unravel(at, runs.results), *outer, first + own, *(var for var, _ in inner))
    with nest.apart() as element:
        accumulate(nest, runs.reduction, results=results, lanes=lanes, at=indices, place=place)
    is_there = first + own < extent if extent % runs.turn else None
    with nest.apart() as body, guard(nest, is_there):
        add_loops(nest, inner, element)
    add_loops(nest, [(own, runs.turn)], body)
