"""Finds the softmax between two products, and writes that of a block of keys.

The online form (Milakov & Gimelshein, "Online normalizer calculation for softmax", 2018): of the keys seen so far a row
keeps the maximum m of its scores and the sum l of exp(score - m). A block of keys with the maximum m' makes
    top = max(m, m')     scale = exp(m - top)     l = l * scale + sum of exp(score - top)     m = top
and what was summed with the old weights is multiplied by `scale`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from tvm import tirx
from tvm.ir import Call, Op, Var

from backends.cpu.kernels.attention.read import AttentionStages, Rows, multiply_shares
from backends.tensorir.emit import Expr
from backends.tensorir.intrinsics import SOFTMAX_WEIGHT
from backends.tensorir.softmax_rows import LEAST, SoftmaxForm, softmax_form
from backends.tensorir.stages import Axis, Stage
from fusion.declined import Declined
from fusion.structural import map_nodes

_EXP = Op.get("tirx.exp")


def find_softmax(stages: AttentionStages) -> Var:
    """Return the scores whose softmax the second product reads, in whatever stages it is computed.

    Raises:
        Declined: The rows are something else.
    """
    if len(stages.entering) != 1:
        raise Declined("its rows are no softmax: not of one kind of scores")
    (entering,) = stages.entering
    softmax_form(stages.rows, entering)
    return entering


def form_of(stages: AttentionStages) -> SoftmaxForm:
    """Return the form of the softmax between the products."""
    return softmax_form(stages.rows, find_softmax(stages))


def weight_of(distance: Expr) -> Expr:
    """Return e^distance of a score from the maximum of its row, and 0 where that is subnormal.

    Beside the weight of the maximum, which is 1, it is nothing; but each multiply-add with it takes an assist of the
    core's microcode. A mask of -100, as in Swin, makes such weights: its attention took ten times as long.
    """
    return tirx.call_intrin("float32", SOFTMAX_WEIGHT, distance)


def weighing_rows(stages: AttentionStages) -> Rows:
    """Return the rows between the products, those of a softmax with `weight_of` for their exponentials, and multiplied
    where they are divided: other rows may have a total whose reciprocal is infinite or subnormal."""
    try:
        find_softmax(stages)
    except Declined:
        return Rows(stages.rows, stages.weights)

    def flushed(call: Call) -> Expr:
        return weight_of(*call.args) if call.op.same_as(_EXP) else call

    flushing = [replace(stage, value=map_nodes(stage.value, (Call, flushed))) for stage in stages.rows]
    return multiply_shares(Rows(flushing, stages.weights))


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
            of_row(self.scale, weight_of(at(self.top, row) - top)),
            Stage(self.weights, (row, key), (), weight_of(at(self.scores, row, key) - top)),
            reduced(block_total, self.weights, tirx.Add, 0.0),
            of_row(self.new_total, at(self.total, row) * at(self.scale, row) + at(block_total, row)),
            of_row(self.total, at(self.new_total, row)),
            of_row(self.top, top),
        ]
