"""Running sums and products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tvm import relax, te, tirx

from backends.cuda.legalize.threads import FEW_LINES, Expr, Threads, Variable, WaitingLine
from backends.tensorir.legalize.common import NARROW, FLegalize
from fusion.bindings import data_of
from fusion.shapes import static_shape

_SHORT = 1 << 13
"""Steps of a line of which each may add all before it."""


def _scan(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """A thread has a line; where there are few, each result adds all that is before it."""
    x, attrs = data_of(call), call.attrs
    shape, dtype = static_shape(x), str(attrs.dtype or x.ty.dtype)
    wide = "float32" if dtype in NARROW else dtype
    line = WaitingLine(1, prod(shape), 1) if attrs.axis is None else WaitingLine.of(shape, int(attrs.axis))
    scan = _Running(line, wide, multiplies=call.op.name.endswith("cumprod"), exclusive=bool(attrs.exclusive))
    rows = builder.emit(relax.op.reshape(x, line.shape))
    made = builder.emit(builder.call_te(scan.of, rows, primfunc_name_hint=call.op.name[6:]))
    made = builder.emit(relax.op.reshape(made, (prod(shape),) if attrs.axis is None else shape))
    return made if wide == dtype else relax.op.astype(made, dtype)


@dataclass(frozen=True)
class _Running:
    """Running sums along the steps of a line, or products where it `multiplies`; those of what is before each element
    where they are `exclusive`."""

    line: WaitingLine
    dtype: str
    multiplies: bool
    exclusive: bool

    def of(self, data: te.Tensor) -> te.Tensor:
        """Return those of `data`, which has the shape of the line."""

        def loops(operands: Sequence[tirx.Buffer], results: Sequence[tirx.Buffer]) -> tirx.Stmt:
            nest, line = Threads(), self.line
            is_few = line.before * line.behind < FEW_LINES and line.steps <= _SHORT
            (self._results if is_few else self._lines)(nest, operands[0], results[0])
            return nest.finish()

        return te.extern([self.line.shape], [data], loops, name="running", dtype=[self.dtype])

    def _results(self, nest: Threads, source: tirx.Buffer, out: tirx.Buffer) -> None:
        with nest.threads(self.line.shape) as (before, step, behind):
            total = nest.variable("total", self._start)
            with nest.loop("k", step + (0 if self.exclusive else 1)) as k:
                self._take(total, tirx.BufferLoad(source, [before, k, behind]))
            nest.store(out, [before, step, behind], total.value)

    def _lines(self, nest: Threads, source: tirx.Buffer, out: tirx.Buffer) -> None:
        with nest.threads((self.line.before, self.line.behind)) as (before, behind):
            total = nest.variable("total", self._start)
            with nest.loop("step", self.line.steps) as step:
                place = [before, step, behind]
                if self.exclusive:
                    nest.store(out, place, total.value)
                self._take(total, tirx.BufferLoad(source, place))
                if not self.exclusive:
                    nest.store(out, place, total.value)

    @property
    def _start(self) -> Expr:
        """-0, so that a first -0 stays; 0 is what comes before it."""
        none = -0.0 if "float" in self.dtype and not self.exclusive else 0
        return tirx.const(1 if self.multiplies else none, self.dtype)

    def _take(self, total: Variable, element: Expr) -> None:
        wide = element.astype(self.dtype)
        total.set(total.value * wide if self.multiplies else total.value + wide)


SCANS: dict[str, FLegalize] = {"relax.cumsum": _scan, "relax.cumprod": _scan}
