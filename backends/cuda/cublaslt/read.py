"""Reads a kernel that is one call of cuBLASLt: a product of matrices in memory, a bias of columns, a maximum with 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from tvm import tirx
from tvm.ir import Range, Var
from tvm.sym import Analyzer
from tvm_ffi.structural import structural_equal

from backends.cuda.cublaslt.product import DeviceProductCall, LibraryProduct, OperandLayout
from backends.cuda.kernels.matmul.operand import MatrixOperand
from backends.cuda.kernels.matmul.read import SumOfProducts, read_product
from backends.tensorir.accesses import flat_index, range_of
from backends.tensorir.emit import int64
from backends.tensorir.inlining import Resolver
from backends.tensorir.stages import dtype_of, shape_of, substitute
from fusion.declined import Declined

Expr = Any


def read_product_call(func: tirx.PrimFunc, *, tfloat32: bool) -> DeviceProductCall:
    """Return the call that computes `func`.

    Raises:
        Declined: It is no product, its operands are no matrices in memory, or what is behind is something else.
    """
    product = read_product(func)
    behind = _Behind.of(product)
    tensors = [product.left.buffer, product.right.buffer, behind.result, *behind.biases]
    return DeviceProductCall(
        LibraryProduct(
            batches=product.batches,
            rows=product.rows,
            columns=product.columns,
            depth=product.depth,
            left=_layout(product.left, product.batches),
            right=_layout(product.right, product.batches),
            dtype=product.dtype,
            result_dtype=_result_dtype(product, behind),
            tfloat32=tfloat32 and product.dtype == "float32",
            has_bias=bool(behind.biases),
            has_relu=behind.has_relu,
        ),
        tuple(_position(func, tensor) for tensor in tensors),
    )


def _position(func: tirx.PrimFunc, tensor: Var) -> int:
    found = [place for place, param in enumerate(func.params) if param.same_as(tensor)]
    if not found:
        raise Declined("an operand is made inside of the kernel")
    return found[0]


def _result_dtype(product: SumOfProducts, behind: _Behind) -> str:
    dtype = dtype_of(behind.result)
    if dtype not in (product.dtype, "float32") or any(dtype_of(bias) != dtype for bias in behind.biases):
        raise Declined("cuBLASLt has no product of these dtypes")
    return dtype


def _layout(operand: MatrixOperand, batches: int) -> OperandLayout:
    """Return how an operand lies: a matrix whose lines are a step apart, a batch of them another step.

    Raises:
        Declined: Its elements lie otherwise, as those read through a window do.
    """
    if operand.condition is not None:
        raise Declined("an operand is read through a window with a padding")
    extents = {operand.batch: batches, operand.outer: operand.extent, operand.depth: operand.depths}
    analyzer = Analyzer()
    for var, extent in extents.items():
        analyzer.bind(var, Range(int64(0), int64(extent)))

    def at(*one: Var) -> int:
        known = {var: int64(int(any(var.same_as(each) for each in one))) for var in extents}
        return int(analyzer.simplify(substitute(operand.position, known)))

    begin = at()
    steps = {var: at(var) - begin if extent > 1 else 0 for var, extent in extents.items()}
    lies = sum((var * int64(step) for var, step in steps.items()), int64(begin))
    if begin or not analyzer.can_prove_equal(operand.position, lies):
        raise Declined("an operand does not lie as a matrix")
    by_depth = steps[operand.depth] == 1 or operand.depths == 1
    inner, lines = (operand.depth, operand.outer) if by_depth else (operand.outer, operand.depth)
    step = steps[lines] if extents[lines] > 1 else extents[inner]
    if (extents[inner] > 1 and steps[inner] != 1) or step < extents[inner]:
        raise Declined("the lines of an operand lie over each other, or are not dense")
    return OperandLayout(by_depth, step, steps[operand.batch])


@dataclass
class _Behind:
    """What is made of the sums: one output, which lies as they do.

    Attributes:
        result: The output.
        biases: What is added to each row: one, or none.
    """

    product: SumOfProducts
    result: Var
    has_relu: bool = False
    biases: list[Var] = field(default_factory=list)
    analyzer: Analyzer = field(default_factory=Analyzer)

    @classmethod
    def of(cls, product: SumOfProducts) -> _Behind:
        if len(product.behind.outputs) != 1:
            raise Declined("it has several outputs")
        (stage,) = product.behind.outputs
        found = cls(product, stage.buffer)
        for axis in stage.spatial:
            found.analyzer.bind(axis.var, range_of(axis))
        found._read(stage.value, [axis.var for axis in stage.spatial])
        return found

    def _read(self, value: Expr, axes: Sequence[Var]) -> None:
        """Take `relu(sums + bias)`, of which all parts but the sums may be missing, as a value at `axes`."""
        place = flat_index(shape_of(self.result), list(axes), self.analyzer)
        sums, added = Var("sums", "float32"), list[tuple[Var, Var]]()

        def load(buffer: Var, indices: Sequence[Expr]) -> Expr:
            at = flat_index(shape_of(buffer), indices, self.analyzer)
            if buffer.same_as(self.product.sums):
                if not self.analyzer.can_prove_equal(at, place):
                    raise Declined("the result does not lie as its sums")
                return sums
            column = tirx.floormod(place, int64(self.product.columns))
            if prod(shape_of(buffer)) != self.product.columns or not self.analyzer.can_prove_equal(at, column):
                raise Declined("what is behind reads another tensor than a bias of each column")
            added.append((Var("bias", "float32"), buffer))
            return added[-1][0]

        resolver = Resolver(self.product.behind.stages, load, self.analyzer)
        whole = resolver.resolve(value, {})
        for var, bound in reversed(resolver.bindings):
            whole = substitute(whole, {var: bound})
        whole = _uncast(whole)
        under = _under_relu(whole)
        self.has_relu, whole = under is not None, whole if under is None else under
        if isinstance(whole, tirx.Add):
            sides = [_uncast(side) for side in (whole.a, whole.b)]
            self.biases = [buffer for var, buffer in added if any(var.same_as(side) for side in sides)]
            whole = next((side for side in sides if sums.same_as(side)), whole)
        if not sums.same_as(whole) or len(self.biases) != len(added):
            raise Declined("what is behind is no bias or maximum with 0")


def _under_relu(value: Expr) -> Expr | None:
    """Return what the maximum with 0 is taken of, in the form that passes NaN on; None where `value` is none."""
    if not isinstance(value, tirx.Select) or not isinstance(value.condition, tirx.LT):
        return None
    compared, bound = value.condition.a, value.condition.b
    are_zeros = all(isinstance(each, tirx.FloatImm) and each.value == 0 for each in (bound, value.true_value))
    return _uncast(compared) if are_zeros and structural_equal(compared, value.false_value) else None


def _uncast(value: Expr) -> Expr:
    """Return what is widened or narrowed: the library rounds once, where it stores."""
    while isinstance(value, tirx.Cast):
        value = value.value
    return value
