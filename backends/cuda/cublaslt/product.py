"""A product that cuBLASLt runs, as plain data that code files keep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

NAME = "cublaslt"
"""Of the library, in the registry and in code files."""
DTYPES = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class OperandLayout:
    """Where the matrices of an operand lie.

    Attributes:
        by_depth: Whether neighbours in memory are neighbours in depth; otherwise in rows, or columns.
        step: Elements between the lines of a matrix.
        batch_step: Elements between its matrices; 0 where there is one for all batches.
    """

    by_depth: bool
    step: int
    batch_step: int


@dataclass(frozen=True)
class LibraryProduct:
    """`max(sum over k of left[b, i, k] * right[b, k, j] + bias[j], 0)`, whose results lie b, i, j one behind another.

    Attributes:
        batches: Extent of b; so for `rows` (i), `columns` (j) and `depth` (k).
        dtype: Of what is multiplied; `result_dtype` is that of the result and of the bias.
        tfloat32: Whether float32 is rounded to that.
        has_bias: Whether something is added.
        has_relu: Whether the maximum is taken.
    """

    batches: int
    rows: int
    columns: int
    depth: int
    left: OperandLayout
    right: OperandLayout
    dtype: str
    result_dtype: str
    tfloat32: bool
    has_bias: bool
    has_relu: bool

    @property
    def multiplied(self) -> str:
        """The operands that tensor cores multiply; "" where there are none."""
        if self.dtype != "float32":
            return self.dtype
        return "tfloat32" if self.tfloat32 else ""

    def __str__(self) -> str:
        batches = f"{self.batches} x " if self.batches > 1 else ""
        behind = f"{' + bias' if self.has_bias else ''}{', relu' if self.has_relu else ''}"
        numbers = self.multiplied or self.dtype
        return f"{batches}{self.rows} x {self.columns} x {self.depth} {numbers}{behind}"


@dataclass(frozen=True)
class DeviceProductCall:
    """A product and where its tensors are.

    Attributes:
        arguments: Positions among a PrimFunc's parameters of the left and the right operand, the result, and the bias
            where there is one.
    """

    product: LibraryProduct
    arguments: tuple[int, ...]


def read_call(fields: Mapping[str, Any]) -> DeviceProductCall:
    """Return the call that `dataclasses.asdict` made these fields of.

    Raises:
        ValueError: They are of none, or of a library that is not known.
    """
    given = dict(fields["product"])
    for side in ("left", "right"):
        lies = given[side]
        given[side] = OperandLayout(bool(lies["by_depth"]), int(lies["step"]), int(lies["batch_step"]))
    product = LibraryProduct(**given)
    call = DeviceProductCall(product, tuple(map(int, fields["arguments"])))
    sizes = (product.batches, product.rows, product.columns, product.depth, product.left.step, product.right.step)
    is_known = {product.dtype, product.result_dtype} <= set(DTYPES)
    if not is_known or min(sizes) < 1 or len(call.arguments) != 3 + product.has_bias:
        raise ValueError(f"a product {product} cannot be run as the file says")
    return call
