"""Reads a kernel that is one call of cuBLASLt: a product of matrices in memory, and what is behind it."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.ir import Var

from backends.cuda.kernels.affine import analyzer_below
from backends.cuda.kernels.matmul.operand import MatrixOperand
from backends.cuda.kernels.matmul.read import SumOfProducts, read_product
from backends.cuda.libraries.call import DeviceLibraryCall
from backends.cuda.libraries.cublaslt.product import LibraryProduct, OperandLayout
from backends.cuda.libraries.epilogue import LibraryEpilogue, read_epilogue
from backends.cuda.libraries.mark import parameter_of
from backends.tensorir.emit import int64
from backends.tensorir.stages import substitute
from fusion.declined import Declined

Expr = Any


def read_product_call(func: tirx.PrimFunc, *, tfloat32: bool) -> DeviceLibraryCall:
    """Return the call that computes `func`.

    Raises:
        Declined: It is no product, its operands are no matrices in memory, or what is behind is something else.
    """
    product = read_product(func)
    epilogue = read_epilogue(product.sums, product.columns, product.epilogue)
    tensors = [product.left.buffer, product.right.buffer, epilogue.result, *epilogue.added]
    return DeviceLibraryCall(
        LibraryProduct(
            batches=product.batches,
            rows=product.rows,
            columns=product.columns,
            depth=product.depth,
            left=_layout(product.left, product.batches),
            right=_layout(product.right, product.batches),
            dtype=product.dtype,
            result_dtype=_result_dtype(product, epilogue),
            tfloat32=tfloat32 and product.dtype == "float32",
            has_bias=epilogue.bias is not None,
            has_relu=epilogue.has_relu,
            has_residual=epilogue.residual is not None,
            has_gelu=epilogue.has_gelu,
        ),
        tuple(parameter_of(func, tensor) for tensor in tensors),
    )


def _result_dtype(product: SumOfProducts, epilogue: LibraryEpilogue) -> str:
    if epilogue.dtype not in (product.dtype, "float32"):
        raise Declined("cuBLASLt has no product of these dtypes")
    if epilogue.has_gelu and epilogue.dtype == "float32":
        raise Declined("how near cuBLASLt's GELU comes to a float32 is not documented")
    return epilogue.dtype


def _layout(operand: MatrixOperand, batches: int) -> OperandLayout:
    """Return how an operand lies: a matrix whose lines are a step apart, a batch of them another step.

    Raises:
        Declined: Its elements lie otherwise, as those read through a window do.
    """
    if operand.condition is not None:
        raise Declined("an operand is read through a window with a padding")
    extents = {operand.batch: batches, operand.outer: operand.extent, operand.depth: operand.depths}
    analyzer = analyzer_below(extents.items())

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
