"""A product that cuBLASLt runs, as plain data; its tensors are the left and the right operand, the result, and the bias
and the residual where there are any."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from backends.cuda.libraries.sums import DTYPES, LibrarySums

NAME = "cublaslt"
"""Of the library, in the registry and in code files."""


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
class LibraryProduct(LibrarySums):
    """`max(sum over k of left[b, i, k] * right[b, k, j] + bias[j] + residual[b, i, j], 0)`, whose results and
    residual lie b, i, j one behind another; or GELU in the place of the maximum.

    Attributes:
        batches: Extent of b; so for `rows` (i), `columns` (j) and `depth` (k).
        dtype: Of what is multiplied; `result_dtype` is that of the result, of the bias and of the residual.
        tfloat32: Whether float32 is rounded to that.
        has_bias: Whether it is added; so for `has_residual`.
        has_relu: Whether the maximum is taken; so for `has_gelu`, `x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2`.
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
    has_residual: bool = False
    has_gelu: bool = False

    @property
    def library(self) -> str:
        """See `LibraryWork`."""
        return NAME

    def __str__(self) -> str:
        batches = f"{self.batches} x " if self.batches > 1 else ""
        added = f"{' + bias' if self.has_bias else ''}{' + residual' if self.has_residual else ''}"
        behind = f"{added}{', relu' if self.has_relu else ''}{', gelu' if self.has_gelu else ''}"
        numbers = self.multiplied or self.dtype
        return f"{batches}{self.rows} x {self.columns} x {self.depth} {numbers}{behind}"


def read_product(fields: Mapping[str, Any]) -> LibraryProduct:
    """Return the product that `dataclasses.asdict` made these fields of.

    Files from before there were residuals, or GELU, name none.

    Raises:
        ValueError: They are of none.
    """
    given = {"has_residual": False, "has_gelu": False, **fields}
    for side in ("left", "right"):
        lies = given[side]
        given[side] = OperandLayout(bool(lies["by_depth"]), int(lies["step"]), int(lies["batch_step"]))
    product = LibraryProduct(**given)
    sizes = (product.batches, product.rows, product.columns, product.depth, product.left.step, product.right.step)
    if product.has_relu and product.has_gelu:
        raise ValueError(f"cuBLASLt does not take both of {product}")
    if not {product.dtype, product.result_dtype} <= set(DTYPES) or min(sizes) < 1:
        raise ValueError(f"a product {product} cannot be run as the file says")
    return product
