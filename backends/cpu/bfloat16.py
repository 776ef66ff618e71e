"""The CPU's instructions for bfloat16: VDPBF16PS and VCVTNEPS2BF16 of x86's AVX512_BF16.

TVM has no LLVM type for bfloat16, so that LLVM's intrinsics, which take vectors of it, cannot be called from TensorIR.
Functions in LLVM's own language wrap them; a kernel that calls one needs `nest.use_functions(FUNCTIONS)`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import tirx

from backends.tensorir.emit import Expr

LANES = 16
"""Numbers in float32 of the instructions' 512-bit forms."""

_DOT, _STORE = "fusion_dot_bfloat16", "fusion_store_bfloat16"

FUNCTIONS = f"""
declare <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(<16 x float>, <32 x bfloat>, <32 x bfloat>)
declare <16 x bfloat> @llvm.x86.avx512bf16.cvtneps2bf16.512(<16 x float>)

define <16 x i32> @{_DOT}(<16 x i32> %total, <16 x i32> %left, <16 x i32> %right) {{
  %t = bitcast <16 x i32> %total to <16 x float>
  %l = bitcast <16 x i32> %left to <32 x bfloat>
  %r = bitcast <16 x i32> %right to <32 x bfloat>
  %sum = call <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(<16 x float> %t, <32 x bfloat> %l, <32 x bfloat> %r)
  %bits = bitcast <16 x float> %sum to <16 x i32>
  ret <16 x i32> %bits
}}

define i32 @{_STORE}(ptr %to, <16 x float> %value) {{
  %narrow = call <16 x bfloat> @llvm.x86.avx512bf16.cvtneps2bf16.512(<16 x float> %value)
  store <16 x bfloat> %narrow, ptr %to, align 2
  ret i32 0
}}
"""


def fills_vectors(shape: Sequence[int]) -> bool:
    """Return whether the rows of a tensor fill vectors, so that two of them can be read as pairs."""
    return shape[-1] % LANES == 0


def dot(total: Expr, left: Expr, right: Expr) -> Expr:
    """Return `total[i] + left[i].low * right[i].low + left[i].high * right[i].high`, denormals taken as zero.

    `total` has 16 float32; `left` and `right` have 16 uint32, each a pair of bfloat16.
    """
    bits = tirx.call_pure_extern(f"uint32x{LANES}", _DOT, tirx.reinterpret(f"uint32x{LANES}", total), left, right)
    return tirx.reinterpret(f"float32x{LANES}", bits)


def store(first: tirx.BufferLoad, value: Expr) -> tirx.Stmt:
    """Return the store of 16 float32, rounded to the nearest bfloat16 (to even), where the load `first` and what lies
    behind it read. Denormals become zero. In place of this one instruction TVM rounds by seven of integers."""
    return tirx.Evaluate(tirx.call_extern("int32", _STORE, tirx.address_of(first), value))
