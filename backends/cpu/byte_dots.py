"""The CPU's instruction for products of bytes: VPDPBUSD of x86's AVX512_VNNI.

It wraps LLVM's intrinsic in a function in LLVM's own language, as the types of its operands changed between versions; a
kernel that calls it needs `nest.use_functions(FUNCTIONS)`.
"""

from __future__ import annotations

from tvm import tirx

from backends.tensorir.emit import Expr

LANES = 16
"""Sums in int32 of the instruction's 512-bit form."""

LEFT, RIGHT, SUMS = "uint8", "int8", "int32"
"""What it multiplies, and in what it adds up."""

_DOT = "fusion_dot_bytes"

FUNCTIONS = f"""
declare <16 x i32> @llvm.x86.avx512.vpdpbusd.512(<16 x i32>, <16 x i32>, <16 x i32>)

define <16 x i32> @{_DOT}(<16 x i32> %total, <16 x i32> %left, <16 x i32> %right) {{
  %sum = call <16 x i32> @llvm.x86.avx512.vpdpbusd.512(<16 x i32> %total, <16 x i32> %left, <16 x i32> %right)
  ret <16 x i32> %sum
}}
"""


def dot(total: Expr, left: Expr, right: Expr) -> Expr:
    """Return `total[i]` and the four products of the bytes of `left[i]`, which have no sign, and of `right[i]`, which
    have one: exact, but for sums that no int32 holds, which wrap.

    All three have 16 int32.
    """
    return tirx.call_pure_extern(f"int32x{LANES}", _DOT, total, left, right)
