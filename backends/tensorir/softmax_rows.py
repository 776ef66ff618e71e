"""Reads from its stages whether what computes rows from rows is a softmax, in whatever stages it is computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tvm import tirx
from tvm.ir import TensorLoad, Var
from tvm_ffi.structural import structural_equal

from backends.tensorir.emit import Expr
from backends.tensorir.stages import Axis, Stage, dims_of, is_at
from fusion.declined import Declined
from fusion.structural import map_nodes

LEAST = -3.4028234663852886e38
"""What a maximum begins with. From -inf a block whose keys are all masked would be (-inf) - (-inf), a NaN; from here
its weights are zeros, and a row of which every key is masked is 0 / 0 at the end, as in the plain form."""


def check_softmax(rows: Sequence[Stage], scores: Var) -> None:
    """Raise where the last of `rows` is not the softmax of `scores`, of which they read nothing else.

    exp(s[i, n] - max over n of s[i, n]) / (sum over n of exp(s[i, n] - max)), or times the sum's reciprocal

    Raises:
        Declined: The rows are something else.
    """
    reductions = [stage for stage in rows if stage.combine is not None]
    if [stage.combine for stage in reductions] != [tirx.Max, tirx.Add]:
        raise Declined("its rows are no softmax: other than a maximum and a sum")
    names = _Names(rows, len(dims_of(scores)))
    top, total = reductions
    score, maximum, summed = (names.of(buffer) for buffer in (scores, top.buffer, total.buffer))
    grown, one = tirx.exp(score - maximum), tirx.const(1, "float32")
    if not structural_equal(names.value(top), score) or not structural_equal(names.value(total), grown):
        raise Declined("its rows are no softmax: a maximum of other numbers, or a sum of others than exponentials")
    results = (grown / summed, grown * (one / summed), (one / summed) * grown)
    last = names.of(rows[-1].buffer)
    if not any(structural_equal(last, result) for result in results):
        raise Declined("its rows are no softmax: not exponentials divided by their sum")


@dataclass
class _Names:
    """Writes what stages compute over one variable for each buffer that comes from outside of them or is reduced.

    Attributes:
        rank: Of what has an element for each key.
    """

    stages: Sequence[Stage]
    rank: int
    known: dict[Var, Expr] = field(default_factory=dict)

    def of(self, buffer: Var) -> Expr:
        """Return one element of `buffer`, of the row and the key that are looked at."""
        if buffer not in self.known:
            stage = next((stage for stage in self.stages if stage.buffer.same_as(buffer)), None)
            inside = stage if stage is not None and stage.combine is None else None
            self.known[buffer] = Var(buffer.name, "float32") if inside is None else self.value(inside)
        return self.known[buffer]

    def value(self, stage: Stage) -> Expr:
        """Return what `stage` stores, or reduces, for one row and key."""
        key = (*stage.spatial, *stage.reduce)[-1]

        def name(load: TensorLoad) -> Expr:
            *_, extent = dims_of(load.source)
            if len(load.indices) == self.rank and not is_at(load.indices[-1], Axis(key.var, extent)):
                raise Declined(f"{stage.buffer.name} reads another key")
            return self.of(load.source)

        return map_nodes(stage.value, (TensorLoad, name))
