"""The loop nest of a scheduled kernel in a few lines, for reports."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from tvm import tirx
from tvm.ir import TensorLoad, Var
from tvm.s_tir.stmt import SBlockRealize
from tvm.tirx import ForKind

from fusion.structural import walk

MAX_LINES = 60
_KINDS = {
    ForKind.SERIAL: "for", ForKind.PARALLEL: "parallel", ForKind.VECTORIZED: "vectorized", ForKind.UNROLLED: "unrolled",
}  # fmt: skip
_MAX_EXPRESSION = 48


def loop_lines(func: tirx.PrimFunc) -> tuple[str, ...]:
    """Return a line for each loop, condition and group of statements of `func`, indented by two spaces a level.

    Statements of one kind in a row are one line with their number, whose operands are those of the first: the 28
    accumulators of a register tile are `28 x acc = acc, p0, p1`. Of long nests the first `MAX_LINES` are returned.
    """
    lines = list(_Writer(frozenset(param.name for param in func.params)).lines(func.body, 0))
    if len(lines) > MAX_LINES:
        lines = [*lines[: MAX_LINES - 1], f"... {len(lines) - MAX_LINES + 1} more lines"]
    return tuple(lines)


Part = tuple[str, tirx.Stmt, list[str]]
"""What equal statements share, which is the line where there are lines below it, the statement, and those lines."""


@dataclass
class _Writer:
    """Describes statements.

    Attributes:
        params: Names of the function's parameters.
        bound: What the variables that name a value stand for, by their identity, which is their hash: to compare two
            variables takes TVM 2 us.
        behind: The operands of those that were asked for.
        names: Of buffers, by identity.
    """

    params: frozenset[str]
    bound: dict[int, tirx.Expr] = field(default_factory=dict)
    behind: dict[int, dict[str, None]] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)

    def lines(self, body: tirx.Stmt, depth: int) -> Iterator[str]:
        parts = [part for statement in _statements(body) if (part := self._describe(statement, depth))]
        for key, same in groupby(parts, key=lambda part: part[0]):
            (_, statement, below), *others = same
            count = f"{len(others) + 1} x " if others else ""
            yield "  " * depth + count + self._line(key, statement)
            yield from below

    def _describe(self, statement: tirx.Stmt, depth: int) -> Part | None:
        kind = type(statement)
        if kind is tirx.Bind:
            self.bound[hash(statement.var)] = statement.value
        elif kind in (tirx.BufferStore, tirx.AllocBuffer):
            return f"{kind.__name__} {self._base(statement.buffer)}", statement, []
        elif kind is tirx.For:
            below = list(self.lines(statement.body, depth + 1))
            line = f"{_KINDS.get(statement.kind, 'for')} {statement.loop_var.name} in {_expression(statement.extent)}"
            return "\n".join((line, *below)), statement, below
        elif kind is tirx.IfThenElse:
            below = list(self.lines(statement.then_case, depth + 1))
            if statement.else_case is not None:
                below += ["  " * depth + "else", *self.lines(statement.else_case, depth + 1)]
            return "\n".join((f"if {_expression(statement.condition)}", *below)), statement, below
        return None

    def _line(self, key: str, statement: tirx.Stmt) -> str:
        if isinstance(statement, tirx.For | tirx.IfThenElse):
            return key.partition("\n")[0]
        name = self._base(statement.buffer)
        if isinstance(statement, tirx.BufferStore):
            return f"{name} = {', '.join(self._operands(statement.value)) or 'constant'}"
        kind = statement.buffer.ty
        return f"buffer {name} {kind.dtype.dtype}[{', '.join(_expression(extent) for extent in kind.shape)}]"

    def _base(self, buffer: Var) -> str:
        """Return what the registers of a tile share: `acc` of `acc3_16`; parameters keep their names."""
        known = self.names.get(hash(buffer))
        if known is None:
            name = str(buffer.name)
            known = name if name in self.params else re.sub(r"[\d_]+$", "", name) or name
            self.names[hash(buffer)] = known
        return known

    def _operands(self, value: tirx.Expr) -> dict[str, None]:
        """Return the buffers that a value is computed from, without repeats."""
        loads: list[TensorLoad] = []
        used: list[Var] = []
        walk(value, (TensorLoad, loads.append), (Var, used.append))
        names = dict.fromkeys(self._base(load.source) for load in loads)
        for key in map(hash, used):
            if key in self.bound:
                names.update(self._through(key))
        return names

    def _through(self, key: int) -> dict[str, None]:
        if key not in self.behind:
            self.behind[key] = self._operands(self.bound[key])
        return self.behind[key]


def _statements(body: tirx.Stmt) -> Iterator[tirx.Stmt]:
    """Yield the statements of a body in order, without what only wraps them."""
    kind = type(body)
    if kind is tirx.SeqStmt:
        for statement in body.seq:
            yield from _statements(statement)
    elif kind is SBlockRealize:
        if body.block.init is not None:
            yield from _statements(body.block.init)
        yield from _statements(body.block.body)
    elif kind is tirx.AttrStmt:
        yield from _statements(body.body)
    else:
        yield body


def _expression(value: Any) -> str:
    if isinstance(value, tirx.IntImm):
        return str(int(value.value))
    text = re.sub(r"T\.int(?:32|64)\((-?\d+)\)", r"\1", " ".join(str(value).split())).replace("T.", "")
    return text if len(text) <= _MAX_EXPRESSION else text[: _MAX_EXPRESSION - 3] + "..."
