"""What products and convolutions that libraries run have in common: sums, and what is added behind them."""

from __future__ import annotations

DTYPES = ("float32", "float16", "bfloat16")
MOST_WORKSPACE_BYTES = 32 << 20
"""What an algorithm may work in: as much as NVIDIA recommends for an H100 (cuBLAS documentation, "cublasSetWorkspace").
What it does work in is told when the module is loaded, and is a part of the module's memory."""


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
    def result(self) -> int:
        """See `LibraryWork`: it is behind the operands."""
        return 2

    @property
    def multiplied(self) -> str:
        """See `LibraryWork`."""
        if self.dtype != "float32":
            return self.dtype
        return "tfloat32" if self.tfloat32 else ""
