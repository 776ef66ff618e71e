"""What a PrimFunc with loops starts on a device: kernels one after another, which hand each other buffers of their own.

    allocate(partial, float32[8192])
    for block, thread in T.grid(32, 128): ...    # a launch, blockIdx.x, threadIdx.x
    for block, thread in T.grid(8, 256): ...     # the next
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from tvm import tirx
from tvm.ir import Var

from backends.tensorir.stages import dims_of, dtype_of, substitute


@dataclass(frozen=True)
class Launches:
    """The kernels of a PrimFunc.

    Attributes:
        workspaces: Buffers that one writes and a later one reads.
        functions: Each with the parameters of the PrimFunc, and behind them those buffers; no two have one name.
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
    bodies = [each for each in statements if not isinstance(each, tirx.AllocBuffer | tirx.Evaluate)]
    given = [*func.params, *workspaces]
    renamed = _named_apart(given)
    params = [renamed.get(var, var) for var in given]
    functions = (tirx.PrimFunc(params, substitute(body, renamed), func.ret_type, func.attrs) for body in bodies)
    return Launches(workspaces, tuple(functions))


def _named_apart(buffers: Sequence[Var]) -> dict[Var, Var]:
    """Return other buffers in place of those whose name an earlier one has: a kernel's pointers, which TVM puts in an
    order of its own, are known by their names."""
    renamed: dict[Var, Var] = {}
    names = {str(buffer.name) for buffer in buffers}
    seen: set[str] = set()
    for buffer in buffers:
        name = str(buffer.name)
        if name in seen:
            name = next(free for at in count(1) if (free := f"{name}_{at}") not in names)
            names.add(name)
            renamed[buffer] = tirx.decl_buffer(dims_of(buffer), dtype_of(buffer), name)
        seen.add(name)
    return renamed
