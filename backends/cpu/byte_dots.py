"""The CPU's instructions for products of bytes: VPDPBUSD of x86's AVX512_VNNI and AVX-VNNI, VPMADDWD of AVX2 and
AVX512BW.

They wrap LLVM's intrinsics in functions in LLVM's own language, as the types of operands changed between versions; a
kernel that calls one needs `nest.use_functions` of the functions of its vectors.

VPMADDUBSW, which AVX2 has for bytes, adds pairs of products up in int16, which saturate: 255 x 127 + 255 x 127 is 32767
in place of 64770.
"""

from __future__ import annotations

from tvm import tirx

from backends.tensorir.emit import Expr

SUMS = "int32"
"""In what products are added up."""

LEFT, RIGHT = "uint8", "int8"
"""What VPDPBUSD multiplies."""

PAIR = "int16"
"""What VPMADDWD multiplies: bytes without their zero point have nine bits."""

_DOT, _DOT_PAIRS = "fusion_dot_bytes", "fusion_dot_pairs"
_MULTIPLY_PAIRS = {8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}


def functions(lanes: int) -> str:
    """Return what `dot` calls, of vectors of so many int32."""
    vector, name = f"<{lanes} x i32>", f"llvm.x86.avx512.vpdpbusd.{32 * lanes}"
    return f"""
declare {vector} @{name}({vector}, {vector}, {vector})

define {vector} @{_DOT}({vector} %total, {vector} %left, {vector} %right) {{
  %sum = call {vector} @{name}({vector} %total, {vector} %left, {vector} %right)
  ret {vector} %sum
}}
"""


def functions_of_pairs(lanes: int) -> str:
    """Return what `dot_pairs` calls, of vectors of so many int32."""
    vector, halves, name = f"<{lanes} x i32>", f"<{2 * lanes} x i16>", f"llvm.x86.{_MULTIPLY_PAIRS[lanes]}"
    return f"""
declare {vector} @{name}({halves}, {halves})

define {vector} @{_DOT_PAIRS}({vector} %total, {vector} %left, {vector} %right) {{
  %l = bitcast {vector} %left to {halves}
  %r = bitcast {vector} %right to {halves}
  %product = call {vector} @{name}({halves} %l, {halves} %r)
  %sum = add {vector} %total, %product
  ret {vector} %sum
}}
"""


def dot(total: Expr, left: Expr, right: Expr, lanes: int) -> Expr:
    """Return `total[i]` and the four products of the bytes of `left[i]`, which have no sign, and of `right[i]`, which
    have one: exact, but for sums that no int32 holds, which wrap.

    All three have `lanes` int32.
    """
    return tirx.call_pure_extern(f"int32x{lanes}", _DOT, total, left, right)


def dot_pairs(total: Expr, left: Expr, right: Expr, lanes: int) -> Expr:
    """Return `total[i]` and both products of the int16 of `left[i]` and of `right[i]`, exact as those of `dot`."""
    return tirx.call_pure_extern(f"int32x{lanes}", _DOT_PAIRS, total, left, right)
