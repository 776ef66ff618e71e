"""The launches of a kernel that comes with its loops."""

from __future__ import annotations

from collections.abc import Iterator

from tvm import tirx
from tvm.s_tir.stmt import SBlock, SBlockRealize
from tvm.tirx import ForKind

from backends.cuda.codegen.launches import join_launches
from backends.cuda.kernels.launch import bound_loop
from backends.cuda.kernels.pointwise.emit import THREADS
from backends.tensorir.emit import Nest
from backends.tensorir.stages import dims_of, dtype_of, substitute
from fusion.declined import Declined
from fusion.structural import find


def emit_lines(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return `func` with a launch for each of its outermost loops, a turn a thread.

    ```
    for line in parallel(n):                for block, thread in T.grid(..., 256):
      ...                              ->     line = block * 256 + thread
                                              if line < n: ...
    ```

    Raises:
        Declined: It has no such loops.
    """
    loops = list(_outermost(_own_block(func).body))
    for loop in loops:
        if not isinstance(loop, tirx.For) or loop.kind != ForKind.PARALLEL or not isinstance(loop.extent, tirx.IntImm):
            raise Declined("it does not come with loops for threads")
    bodies = [_launch(loop) for loop in loops if int(loop.extent) > 0]
    if not bodies:
        raise Declined("it is empty")
    # those that TVM makes begin anywhere in the memory of another
    whole = {param: tirx.decl_buffer(dims_of(param), dtype_of(param), str(param.name)) for param in func.params}
    bodies = [substitute(body, whole) for body in bodies]
    made = tirx.PrimFunc([whole[param] for param in func.params], bodies[0], func.ret_type, func.attrs)
    return made if len(bodies) == 1 else join_launches(made, (), bodies)


def _own_block(func: tirx.PrimFunc) -> SBlock:
    """Return the only block beside the root, which has no axes."""
    own = [block for block in find(func.body, SBlock) if str(block.name_hint) != "root"]
    if len(own) != 1 or own[0].iter_vars or not isinstance(func.body, SBlockRealize):
        raise Declined("it does not come with its loops")
    return own[0]


def _outermost(body: tirx.Stmt) -> Iterator[tirx.Stmt]:
    yield from body.seq if isinstance(body, tirx.SeqStmt) else (body,)


def _launch(loop: tirx.For) -> tirx.Stmt:
    nest, extent = Nest(), int(loop.extent)
    with (
        bound_loop(nest, "blockIdx.x", -(-extent // THREADS)) as block,
        bound_loop(nest, "threadIdx.x", THREADS) as thread,
    ):
        nest.add(tirx.Bind(loop.loop_var, block * THREADS + thread))
        with nest.when(loop.loop_var < extent):
            nest.add(loop.body)
    return nest.finish()
