"""A step of k of a row, multiplied in vectors where it may not be in tiles: a function in LLVM's own language.

    sums[vector] += row[k] * weights[vector, k]     for up to `WIDE` vectors, and the elements of k of a step

Every kernel that multiplies in tiles has this way besides, for rows and weights that are not finite and where Linux
grants no tiles: a third of its code, where it was written out in TensorIR.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from tvm import tirx

from backends.cpu import amx
from backends.tensorir.emit import Expr, int64

WIDE = 8
"""Vectors that are multiplied together: enough to hide what an addition takes."""

_LANES = amx.COLUMNS
_VECTOR, _WORDS = f"<{_LANES} x float>", f"<{_LANES} x i32>"
_TERM_BYTES = amx.DEPTH // 2 * _LANES * 4
"""From a term of a step's weights to the next one."""


@dataclass(frozen=True)
class StepCall:
    """What a call is about.

    Attributes:
        vectors: How many there are, of which `WIDE` at most are multiplied.
        weights_apart, sums_apart: Elements from what a vector has to what the next one has.
        depth: Elements of k, one at least.
        clears: Whether the sums begin with 0, else with what they are; an integer.
    """

    vectors: Expr
    weights_apart: Expr
    sums_apart: Expr
    depth: Expr
    clears: Expr


@dataclass(frozen=True)
class PlainSteps:
    """The function for weights that lie as float32 [vector][k][16], or as terms, [vector][term][k / 2][16][2]."""

    of_terms: bool

    @property
    def name(self) -> str:
        """The function's."""
        return f"fusion_plain_step_of_{'terms' if self.of_terms else 'floats'}"

    def call(self, at: StepCall, row: tirx.BufferLoad, weights: tirx.BufferLoad, sums: tirx.BufferLoad) -> tirx.Stmt:
        """Return the call with the first element of each."""
        numbers = [int64(getattr(at, field.name)) for field in fields(at)]
        addresses = [tirx.address_of(load) for load in (row, weights, sums)]
        return tirx.Evaluate(tirx.call_extern("int32", self.name, *numbers, *addresses))

    @property
    def llvm_ir(self) -> str:
        """Its text."""
        numbers = ", ".join(f"i64 %{field.name}" for field in fields(StepCall))
        vectors = range(WIDE)
        begins = "\n".join(f"  %begin.{v} = load {_VECTOR}, ptr %sums.{v}, align 4" for v in vectors)
        carried = "\n".join(
            f"  %sum.{v} = phi {_VECTOR} [ zeroinitializer, %all ], [ %begin.{v}, %load ], [ %next.{v}, %step ]"
            for v in vectors
        )
        products = "\n".join(
            f"{self._weight(v)}\n  %next.{v} = call {_VECTOR} @llvm.fmuladd.v{_LANES}f32"
            f"({_VECTOR} %element, {_VECTOR} %weight.{v}, {_VECTOR} %sum.{v})"
            for v in vectors
        )
        stores = "\n".join(f"  store {_VECTOR} %next.{v}, ptr %sums.{v}, align 4" for v in vectors)
        return f"""
declare {_VECTOR} @llvm.fmuladd.v{_LANES}f32({_VECTOR}, {_VECTOR}, {_VECTOR})
declare i64 @llvm.smin.i64(i64, i64)

define i32 @{self.name}({numbers}, ptr %row, ptr %weights, ptr %sums) {{
all:
  %last = sub nsw i64 %vectors, 1
{"".join(map(_addresses, vectors))}
  %begins = icmp ne i64 %clears, 0
  br i1 %begins, label %step, label %load
load:
{begins}
  br label %step
step:
  %k = phi i64 [ 0, %all ], [ 0, %load ], [ %k.next, %step ]
{carried}
  %place = getelementptr float, ptr %row, i64 %k
  %scalar = load float, ptr %place, align 4
  %lane = insertelement {_VECTOR} poison, float %scalar, i64 0
  %element = shufflevector {_VECTOR} %lane, {_VECTOR} poison, <{_LANES} x i32> zeroinitializer
{self._offset()}
{products}
  %k.next = add nuw nsw i64 %k, 1
  %more = icmp ult i64 %k.next, %depth
  br i1 %more, label %step, label %store
store:
{stores}
  ret i32 0
}}
"""

    def _offset(self) -> str:
        """Return where, in bytes, the weights of k lie behind the first ones, and which half of words is that of k."""
        if not self.of_terms:
            return f"  %offset = mul nuw nsw i64 %k, {4 * _LANES}"
        return f"""  %pair = lshr i64 %k, 1
  %offset = mul nuw nsw i64 %pair, {4 * _LANES}
  %odd = trunc i64 %k to i1
  %shift = select i1 %odd, i32 0, i32 16
  %shift.lane = insertelement {_WORDS} poison, i32 %shift, i64 0
  %shifts = shufflevector {_WORDS} %shift.lane, {_WORDS} poison, <{_LANES} x i32> zeroinitializer"""

    def _weight(self, v: int) -> str:
        """Return the weight of vector `v`: as it lies, or the sum of its terms, the smallest first."""
        if not self.of_terms:
            return f"""  %at.{v} = getelementptr i8, ptr %weights.{v}, i64 %offset
  %weight.{v} = load {_VECTOR}, ptr %at.{v}, align 4"""
        lines = [f"  %at.{v} = getelementptr i8, ptr %weights.{v}, i64 %offset"]
        for term in range(amx.TERM_COUNT):
            here = f"{v}.{term}"
            lines += [
                f"  %at.{here} = getelementptr i8, ptr %at.{v}, i64 {term * _TERM_BYTES}",
                f"  %words.{here} = load {_WORDS}, ptr %at.{here}, align 4",
                f"  %up.{here} = shl {_WORDS} %words.{here}, %shifts",
                f"  %high.{here} = and {_WORDS} %up.{here}, splat (i32 {amx.TERM_BITS})",
                f"  %term.{here} = bitcast {_WORDS} %high.{here} to {_VECTOR}",
            ]
        return "\n".join([
            *lines,
            f"  %small.{v} = fadd {_VECTOR} %term.{v}.1, %term.{v}.2",
            f"  %weight.{v} = fadd {_VECTOR} %term.{v}.0, %small.{v}",
        ])  # fmt: skip


def _addresses(v: int) -> str:
    """Return the addresses of what vector `v` has; those behind the last are the last, once more."""
    return f"""  %vector.{v} = call i64 @llvm.smin.i64(i64 {v}, i64 %last)
  %weights.at.{v} = mul nsw i64 %vector.{v}, %weights_apart
  %weights.{v} = getelementptr float, ptr %weights, i64 %weights.at.{v}
  %sums.at.{v} = mul nsw i64 %vector.{v}, %sums_apart
  %sums.{v} = getelementptr float, ptr %sums, i64 %sums.at.{v}
"""
