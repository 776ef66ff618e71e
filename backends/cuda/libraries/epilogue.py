"""Reads what is made of sums as libraries make it: `max(sums + bias[column] + residual, 0)`, or parts of that, or GELU
in the place of the maximum."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import tirx
from tvm.ir import Var
from tvm.sym import Analyzer
from tvm_ffi.structural import structural_equal

from backends.cuda.kernels.affine import analyzer_over
from backends.cuda.kernels.inlined import inlined
from backends.cuda.kernels.pointwise.read import ElementwiseRegion
from backends.tensorir.accesses import flat_index
from backends.tensorir.emit import int64
from backends.tensorir.legalize.activations import gelu_tanh
from backends.tensorir.stages import dtype_of, shape_of
from fusion.declined import Declined

Expr = Any


@dataclass(frozen=True)
class LibraryEpilogue:
    """What is made of sums: one output, which lies as they do.

    Attributes:
        result: The output.
        bias: What is added to each row of sums; so for `residual`, to each sum. None where nothing is.
        has_relu: Whether the maximum with 0 is taken.
        has_gelu: Whether GELU is, in the form of a hyperbolic tangent.
    """

    result: Var
    bias: Var | None
    residual: Var | None
    has_relu: bool
    has_gelu: bool

    @property
    def added(self) -> tuple[Var, ...]:
        """What is added, the bias first."""
        return tuple(each for each in (self.bias, self.residual) if each is not None)

    @property
    def dtype(self) -> str:
        """Of the result and of what is added.

        Raises:
            Declined: These differ.
        """
        dtype = dtype_of(self.result)
        if any(dtype_of(each) != dtype for each in self.added):
            raise Declined("what is added is of another type than the result")
        return dtype


def read_epilogue(sums: Var, columns: int, region: ElementwiseRegion) -> LibraryEpilogue:
    """Return what a region makes of sums, the last `columns` of which are a row.

    Raises:
        Declined: It is something else.
    """
    if len(region.outputs) != 1:
        raise Declined("it has several outputs")
    (stage,) = region.outputs
    analyzer = analyzer_over(stage.spatial)
    place = flat_index(shape_of(stage.buffer), [axis.var for axis in stage.spatial], analyzer)
    loaded = _Loaded(sums, columns, place, analyzer)
    whole = _uncast(inlined(stage.value, region.stages, analyzer, loaded.load))
    under_relu, under_gelu = _under_relu(whole), _under_gelu(whole)
    terms = list(_terms(next((each for each in (under_relu, under_gelu) if each is not None), whole)))
    found = loaded.found
    if len(terms) != len(found) or any(not any(var.same_as(term) for term in terms) for var, _, _ in found):
        raise Declined("what is behind is no bias, residual, maximum with 0 or GELU by a hyperbolic tangent")
    kinds = {kind: buffer for _, kind, buffer in found}
    if len(kinds) != len(found) or "sums" not in kinds:
        raise Declined("what is behind adds several tensors of a kind")
    has_relu, has_gelu = under_relu is not None, under_gelu is not None
    return LibraryEpilogue(stage.buffer, kinds.get("bias"), kinds.get("residual"), has_relu, has_gelu)


class _Loaded:
    """What a value at `place` loads.

    Attributes:
        found: A variable in the place of each element, its kind, and the buffer.
    """

    def __init__(self, sums: Var, columns: int, place: Expr, analyzer: Analyzer) -> None:
        self._sums, self._columns, self._place, self._analyzer = sums, columns, place, analyzer
        self.found: list[tuple[Var, str, Var]] = []

    def load(self, buffer: Var, indices: Sequence[Expr]) -> Expr:
        kind = self._kind(buffer, indices)
        known = (var for var, of, held in self.found if of == kind and held.same_as(buffer))
        var = next(known, None)
        if var is None:
            var = Var("loaded", "float32")
            self.found.append((var, kind, buffer))
        return var

    def _kind(self, buffer: Var, indices: Sequence[Expr]) -> str:
        at = flat_index(shape_of(buffer), indices, self._analyzer)
        is_here = bool(self._analyzer.can_prove_equal(at, self._place))
        if buffer.same_as(self._sums):
            if not is_here:
                raise Declined("the result does not lie as its sums")
            return "sums"
        column = tirx.floormod(self._place, int64(self._columns))
        if prod(shape_of(buffer)) == self._columns and self._analyzer.can_prove_equal(at, column):
            return "bias"
        if not is_here or prod(shape_of(buffer)) != prod(shape_of(self._sums)):
            raise Declined(
                "what is behind reads another tensor than a bias of columns or a residual"
            )
        return "residual"


def _terms(value: Expr) -> Iterator[Expr]:
    """Yield what is added up."""
    value = _uncast(value)
    if isinstance(value, tirx.Add):
        yield from _terms(value.a)
        yield from _terms(value.b)
    else:
        yield value


def _under_relu(value: Expr) -> Expr | None:
    """Return what the maximum with 0 is taken of, in the form that passes NaN on; None where `value` is none."""
    if not isinstance(value, tirx.Select) or not isinstance(value.condition, tirx.LT):
        return None
    compared, bound = value.condition.a, value.condition.b
    are_zeros = all(isinstance(each, tirx.FloatImm) and each.value == 0 for each in (bound, value.true_value))
    return _uncast(compared) if are_zeros and structural_equal(compared, value.false_value) else None


def _under_gelu(value: Expr) -> Expr | None:
    """Return what GELU is taken of, in the form of a hyperbolic tangent; None where `value` is none.

    That of the error function is another one: libraries have none of it.
    """
    if not isinstance(value, tirx.Mul):
        return None
    one, (inner,) = tirx.const(1.0, "float32"), gelu_tanh(value.a).b.args
    expected = value.a * (one / (one + tirx.exp(inner * tirx.const(-1.0, "float32"))))
    return _uncast(value.a) if structural_equal(expected, value) else None


def _uncast(value: Expr) -> Expr:
    """Return what is widened or narrowed: a library rounds once, where it stores."""
    while isinstance(value, tirx.Cast):
        value = value.value
    return value
