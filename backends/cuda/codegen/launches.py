"""What a PrimFunc with loops starts on a device: kernels one after another, which hand each other buffers of their own.

    allocate(partial, float32[8192])
    for block, thread in T.grid(32, 128): ...    # a launch, blockIdx.x, threadIdx.x
    for block, thread in T.grid(8, 256): ...     # the next
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm import tirx
from tvm.ir import Var


@dataclass(frozen=True)
class Launches:
    """The kernels of a PrimFunc.

    Attributes:
        workspaces: Buffers that one writes and a later one reads.
        functions: Each with the parameters of the PrimFunc, and behind them those buffers.
    """

    workspaces: tuple[Var, ...]
    functions: tuple[tirx.PrimFunc, ...]


def join_launches(func: tirx.PrimFunc, workspaces: Sequence[Var], bodies: Sequence[tirx.Stmt]) -> tirx.PrimFunc:
    """Return `func` with the loops of several kernels."""
    return func.with_body(tirx.SeqStmt([*map(tirx.AllocBuffer, workspaces), *bodies]))


def launches_of(func: tirx.PrimFunc) -> Launches:
    """Return the kernels of a PrimFunc with loops."""
    statements = list(func.body.seq) if isinstance(func.body, tirx.SeqStmt) else [func.body]
    workspaces = tuple(each.buffer for each in statements if isinstance(each, tirx.AllocBuffer))
    bodies = [each for each in statements if not isinstance(each, tirx.AllocBuffer)]
    params = [*func.params, *workspaces]
    return Launches(workspaces, tuple(tirx.PrimFunc(params, body, func.ret_type, func.attrs) for body in bodies))
