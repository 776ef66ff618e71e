"""What products and convolutions that libraries run have in common: sums, and what is added behind them."""

from __future__ import annotations

DTYPES = ("float32", "float16", "bfloat16")


class LibrarySums:
    """Sums of products of two operands, with a bias and a residual behind them where there are any.

    Attributes:
        dtype: Of the operands; `tfloat32` says whether float32 is rounded to that.
    """

    dtype: str
    tfloat32: bool
    has_bias: bool
    has_residual: bool

    @property
    def tensors(self) -> int:
        """See `LibraryWork`."""
        return 3 + self.has_bias + self.has_residual

    @property
    def multiplied(self) -> str:
        """See `LibraryWork`."""
        if self.dtype != "float32":
            return self.dtype
        return "tfloat32" if self.tfloat32 else ""
