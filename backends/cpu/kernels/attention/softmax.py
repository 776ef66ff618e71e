"""Reads from its stages whether the work between two products is a softmax, and writes that of a block of keys.

The online form (Milakov & Gimelshein, "Online normalizer calculation for softmax", 2018): of the keys seen so far a row
keeps the maximum m of its scores and the sum l of exp(score - m). A block of keys with the maximum m' makes
    top = max(m, m')     scale = exp(m - top)     l = l * scale + sum of exp(score - top)     m = top
and what was summed with the old weights is multiplied by `scale`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields

from tvm import tirx
from tvm.ir import TensorLoad, Var
from tvm_ffi.structural import structural_equal

from backends.cpu.kernels.attention.read import AttentionStages
from backends.tensorir.emit import Expr
from backends.tensorir.stages import Axis, Stage, dims_of, is_at
from fusion.declined import Declined
from fusion.structural import map_nodes

LEAST = -3.4028234663852886e38
"""What a maximum begins with. From -inf a block whose keys are all masked would be (-inf) - (-inf), a NaN; from here
its weights are zeros, and a row of which every key is masked is 0 / 0 at the end, as in the plain form."""


def find_softmax(stages: AttentionStages) -> Var:
    """Return the scores whose softmax the second product reads, in whatever stages it is computed.

    exp(s[i, n] - max over n of s[i, n]) / (sum over n of exp(s[i, n] - max)), or times the sum's reciprocal

    Raises:
        Declined: The rows are something else.
    """
    reductions = [stage for stage in stages.rows if stage.combine is not None]
    if [stage.combine for stage in reductions] != [tirx.Max, tirx.Add] or len(stages.entering) != 1:
        raise Declined("its rows are no softmax: other than a maximum and a sum of one kind of scores")
    names = _Names(stages.rows, len(dims_of(stages.scores.buffer)))
    (entering,), (top, total) = stages.entering, reductions
    scores, maximum, summed = (names.of(buffer) for buffer in (entering, top.buffer, total.buffer))
    grown, one = tirx.exp(scores - maximum), tirx.const(1, "float32")
    if not structural_equal(names.value(top), scores) or not structural_equal(names.value(total), grown):
        raise Declined("its rows are no softmax: a maximum of other numbers, or a sum of others than exponentials")
    results = (grown / summed, grown * (one / summed), (one / summed) * grown)
    last = names.of(stages.rows[-1].buffer)
    if not any(structural_equal(last, result) for result in results):
        raise Declined("its rows are no softmax: not exponentials divided by their sum")
    return entering


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


@dataclass(frozen=True)
class Online:
    """Buffers of a block of rows, one number a row but for `scores` and `weights`.

    Attributes:
        scores, weights: Those of a block of keys.
        top, total: Maximum and sum of the keys so far.
        new_top, new_total: Those with a block of keys more.
        scale: What multiplies all that was summed before.
    """

    scores: Var
    weights: Var
    top: Var
    total: Var
    new_top: Var
    new_total: Var
    scale: Var

    @staticmethod
    def of(rows: int, stride: int) -> Online:
        """Return the buffers of `rows` rows of scores that lie `stride` elements apart."""
        shapes = {"scores": (rows, stride), "weights": (rows, stride)}
        names = (part.name for part in fields(Online))
        return Online(*(tirx.decl_buffer(shapes.get(name, (rows,)), "float32", name) for name in names))

    @property
    def all(self) -> list[Var]:
        """Every buffer."""
        return [getattr(self, part.name) for part in fields(self)]

    def start(self) -> dict[Var, float]:
        """Return what the buffers hold before the first keys."""
        return {self.top: LEAST, self.total: 0.0}

    def stages(self, rows: int, keys: int) -> list[Stage]:
        """Return the stages of one block of `keys` keys, in the order in which those of a row have to be computed.

        None reads what it writes: the last vector of an axis may be computed twice.
        """
        block_top, block_total = (tirx.decl_buffer((rows,), "float32", name) for name in ("block_top", "block_total"))
        row, key = Axis(Var("row", "int64"), rows), Axis(Var("key", "int64"), keys)

        def at(buffer: Var, *axes: Axis) -> Expr:
            return tirx.BufferLoad(buffer, [axis.var for axis in axes])

        def of_row(buffer: Var, value: Expr) -> Stage:
            return Stage(buffer, (row,), (), value)

        def reduced(buffer: Var, source: Var, combine: type, identity: float) -> Stage:
            return Stage(
                buffer=buffer,
                spatial=(row,),
                reduce=(key,),
                value=at(source, row, key),
                combine=combine,
                identity=tirx.const(identity, "float32"),
            )

        top = at(self.new_top, row)
        return [
            reduced(block_top, self.scores, tirx.Max, LEAST),
            of_row(self.new_top, tirx.max(at(self.top, row), at(block_top, row))),
            of_row(self.scale, tirx.exp(at(self.top, row) - top)),
            Stage(self.weights, (row, key), (), tirx.exp(at(self.scores, row, key) - top)),
            reduced(block_total, self.weights, tirx.Add, 0.0),
            of_row(self.new_total, at(self.total, row) * at(self.scale, row) + at(block_total, row)),
            of_row(self.total, at(self.new_total, row)),
            of_row(self.top, top),
        ]
