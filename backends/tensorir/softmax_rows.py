"""Reads from its stages whether what computes rows from rows is a softmax, in whatever stages it is computed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from tvm import tirx
from tvm.ir import Call, Op, TensorLoad, Var
from tvm_ffi.structural import structural_equal

from backends.tensorir.emit import Expr, splat
from backends.tensorir.stages import Axis, Stage, dims_of, is_at
from fusion.declined import Declined
from fusion.structural import map_nodes

LEAST = -3.4028234663852886e38
"""What a maximum begins with. From -inf a block whose keys are all masked would be (-inf) - (-inf), a NaN; from here
its weights are zeros, and a row of which every key is masked is 0 / 0 at the end, as in the plain form."""

LEAST_SUM = 1.1754943508222875e-38
"""The least normal number. The sum of a row that has a key is 1 at least, as the weight of the maximum is."""


def bounded_sum(total: Expr) -> Expr:
    """Return what divides a row where one without keys is to be zeros; NaN stays, as a maximum of two returns the
    second if they do not compare."""
    return tirx.max(tirx.const(LEAST_SUM, "float32"), total)


class SoftmaxForm(Enum):
    """What a row is whose scores are all -inf, or that has a NaN: NaN in each case; zeros in the first, as in torch's
    attention; zeros in both, as torch exports that to ONNX, with a test of each weight."""

    PLAIN = auto()
    BOUNDED = auto()
    GUARDED = auto()

    def share(self, total: Expr) -> Expr:
        """Return what multiplies weights that are 0 where all scores are -inf, and have this `total`; NaN stays."""
        one = tirx.const(1, "float32")
        if self is SoftmaxForm.GUARDED:
            return one / tirx.Select(total.equal(0), one, total)
        return one / (bounded_sum(total) if self is SoftmaxForm.BOUNDED else total)

    def finished(self, product: Expr, total: Expr, lanes: int) -> Expr:
        """Return a vector of a row's product with weights that have been multiplied so."""
        if self is not SoftmaxForm.GUARDED:
            return product
        return tirx.Select(splat(tirx.isnan(total), lanes), splat(tirx.const(0, "float32"), lanes), product)


def is_bounded_softmax(rows: Sequence[Stage], scores: Var) -> bool:
    """Return whether the last of `rows`, which is the softmax of `scores`, is zeros where all scores of a row are -inf,
    as torch's attention is, and not NaN.

    Raises:
        Declined: The rows are something else.
    """
    form = softmax_form(rows, scores)
    if form is SoftmaxForm.GUARDED:
        raise Declined("its rows are no softmax: each weight is tested")
    return form is SoftmaxForm.BOUNDED


def softmax_form(rows: Sequence[Stage], scores: Var) -> SoftmaxForm:
    """Return in which form the last of `rows` is the softmax of `scores`:

    exp(s[i, n] - max over n of s[i, n]) / (sum over n of exp(s[i, n] - max)), or times the sum's reciprocal;
    so too with max(`LEAST`, the maximum) and max(`LEAST_SUM`, the sum) in place of these; or that where it is a number,
    and 0 where it is none

    Raises:
        Declined: The rows are something else.
    """
    reductions = [stage for stage in rows if stage.combine is not None]
    if [stage.combine for stage in reductions] != [tirx.Max, tirx.Add]:
        raise Declined("its rows are no softmax: other than a maximum and a sum")
    names = _Names(rows, len(dims_of(scores)))
    top, total = reductions
    score, maximum, summed = (names.of(buffer) for buffer in (scores, top.buffer, total.buffer))
    tops, divisors = (maximum, *_at_least(LEAST, maximum)), (summed, *_at_least(LEAST_SUM, summed))
    exponentials = [tirx.exp(score - highest) for highest in tops]
    found = [form for form, grown in enumerate(exponentials) if structural_equal(names.value(total), grown)]
    if not structural_equal(names.value(top), score) or not found:
        raise Declined("its rows are no softmax: a maximum of other numbers, or a sum of others than exponentials")
    (form,) = found
    grown, divisor = exponentials[form], divisors[form]
    share = tirx.const(1, "float32") / divisor
    last = names.of(rows[-1].buffer)
    guarded = _guarded(last) if form == 0 else None
    result = last if guarded is None else guarded
    if not any(structural_equal(result, each) for each in (grown / divisor, grown * share, share * grown)):
        raise Declined("its rows are no softmax: not exponentials divided by their sum")
    if guarded is not None:
        return SoftmaxForm.GUARDED
    return SoftmaxForm.BOUNDED if form else SoftmaxForm.PLAIN


def _guarded(value: Expr) -> Expr | None:
    """Return what is 0 where it is NaN; None for another value."""
    if not isinstance(value, tirx.Select) or not structural_equal(value.true_value, tirx.const(0, "float32")):
        return None
    test, inner = value.condition, value.false_value
    if not isinstance(test, Call) or not test.op.same_as(_ISNAN):
        return None
    (tested,) = test.args
    return inner if structural_equal(tested, inner) else None


_ISNAN = Op.get("tirx.isnan")


def _at_least(bound: float, value: Expr) -> tuple[Expr, Expr]:
    """Return what is made of a clip without an upper bound: as it is lowered, and where maxima drop NaN."""
    least, most = tirx.const(bound, "float32"), tirx.const(math.inf, "float32")
    held = tirx.Select(value > most, most, value)
    return tirx.max(least, tirx.min(most, value)), tirx.Select(held < least, least, held)


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
            if len(load.indices) == self.rank and not is_at(load.indices[-1], Axis(key.var, dims_of(load.source)[-1])):
                raise Declined(f"{stage.buffer.name} reads another key")
            return self.of(load.source)

        return map_nodes(stage.value, (TensorLoad, name))
