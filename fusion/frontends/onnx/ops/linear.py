"""Matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_letters

from tvm import relax
from tvm.relax import Expr

from fusion.declined import Declined
from fusion.frontends.onnx.node import Node
from fusion.frontends.onnx.ops.half import cast, wide_of
from fusion.frontends.onnx.registry import converts
from fusion.frontends.onnx.types import Shape


@converts("MatMul")
def matmul(node: Node) -> Expr:
    return product(node.x(0), node.x(1), node.dtype(0))


def product(a: Expr, b: Expr, dtype: str) -> Expr:
    """Return a @ b; half-precision sums lose what ONNX Runtime keeps, so they are made in float32."""
    return cast(_wide_product(a, b, dtype), wide_of(dtype), dtype)


def _wide_product(a: Expr, b: Expr, dtype: str) -> Expr:
    """Return a @ b in the dtype that it is summed in. Operands stay as narrow as they are: a machine says by its
    policy what is widened."""
    wide = wide_of(dtype)
    return relax.op.matmul(a, b, out_dtype=None if wide == dtype else wide)


@converts("Gemm")
def gemm(node: Node) -> Expr:
    """alpha * A' @ B' + beta * C, rounded to half precision once. Constant factors go to the operand they are cheapest
    on, transposes before the product."""
    a, b = node.x(0), node.x(1)
    dtype, alpha, beta = node.dtype(0), node.attr("alpha", 1.0), node.attr("beta", 1.0)
    if not node.is_floating(0):
        return _gemm_of_integers(node, alpha, beta)
    a = relax.op.permute_dims(a, [1, 0]) if node.attr("transA", 0) else a
    b = relax.op.permute_dims(b, [1, 0]) if node.attr("transB", 0) else b
    wide = wide_of(dtype)
    result = _wide_product(a, b, dtype)
    result = result if alpha == 1.0 else relax.op.multiply(result, relax.const(alpha, wide))
    if node.has(2) and beta != 0.0:
        bias = cast(node.x(2), dtype, wide)
        bias = bias if beta == 1.0 else relax.op.multiply(bias, relax.const(beta, wide))
        result = relax.op.add(result, bias)
    return cast(result, wide, dtype)


def _gemm_of_integers(node: Node, alpha: float, beta: float) -> Expr:
    """What is not whole is cut off once, of the sum; TVM's converter cuts off the factors."""
    if float(alpha).is_integer() and float(beta).is_integer():
        raise Declined(f"Gemm of {node.dtype(0)} by whole factors")
    a, b, *bias = (relax.op.astype(x, "float64") for x in node.xs())
    a = relax.op.permute_dims(a, [1, 0]) if node.attr("transA", 0) else a
    b = relax.op.permute_dims(b, [1, 0]) if node.attr("transB", 0) else b
    result = relax.op.multiply(relax.op.matmul(a, b), relax.const(alpha, "float64"))
    if bias:
        result = relax.op.add(result, relax.op.multiply(bias[0], relax.const(beta, "float64")))
    return relax.op.astype(result, node.dtype(0))


@converts("MatMulInteger")
def matmul_integer(node: Node) -> Expr:
    """(A - a_zero) @ (B - b_zero) in int32; a zero point per row of A or per column of B is a vector."""
    a, b = (relax.op.astype(node.x(index), "int32") for index in (0, 1))
    if node.has(2):
        zero = relax.op.expand_dims(node.x(2), -1) if node.shape(2) not in ((), (1,)) else node.x(2)
        a = relax.op.subtract(a, relax.op.astype(zero, "int32"))
    if node.has(3):
        b = relax.op.subtract(b, relax.op.astype(node.x(3), "int32"))
    return relax.op.matmul(a, b)


@converts("Einsum")
def einsum(node: Node) -> Expr:
    """Sum of products over named axes, in float32 for half precision; "..." and a result that is left out get names."""
    shapes = [node.shape(index) for index in range(len(node.proto.input))]
    equation, dtype = _explicit(node.attr("equation").replace(" ", ""), shapes), node.dtype(0)
    wide = wide_of(dtype)
    return cast(relax.op.einsum(tuple(cast(x, dtype, wide) for x in node.xs()), equation), wide, dtype)


def _explicit(equation: str, shapes: Sequence[Shape]) -> str:
    """Return `equation` with a letter for every axis; declines axes under "..." that broadcast."""
    given, arrow, result = equation.partition("->")
    terms = given.split(",")
    spare = [letter for letter in ascii_letters if letter not in equation]
    covered = [
        shape[term.index("...") : len(shape) - len(term) + term.index("...") + 3]
        for term, shape in zip(terms, shapes, strict=True)
        if "..." in term
    ]
    if any(sizes != covered[0] for sizes in covered):
        raise Declined("axes under an ellipsis broadcast")
    dots = "".join(spare[: len(covered[0])]) if covered else ""
    if not arrow:
        once = sorted(letter for letter in set(given) - set(",.") if given.count(letter) == 1)
        result = ("..." if covered else "") + "".join(once)
    return f"{given}->{result}".replace("...", dots)
