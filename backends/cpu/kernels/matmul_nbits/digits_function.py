"""What brings rows of float32 into the bytes by which weights of 4 bits are multiplied: a function in LLVM's own
language.

    for block of k
      most = max |x|
      q = round(x / unit)                 |q| is at most 127, or 127 * 2^16 + 127 * 2^8 + 127
      q = a0 + a1 * 2^8 + a2 * 2^16       digits from -128 to 127
      store unit, unit * sum(q), the sum of each digit, and the digits

One digit is what accuracy_level=4 asks for. Three are as exact as float32: their unit is a power of 2 between 2^-23 and
2^-22 of the largest number of the block, so that those that need no more bits are kept as they are. Of blocks whose
largest number is less than 2^-104 the unit is the least normal number, 2^-126, so that they keep fewer bits.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from tvm import tirx

from backends.cpu.kernels.matmul_nbits.read import FOR_INTEGERS
from backends.tensorir.emit import Expr, int64
from partition.access import NBITS_MIDDLE

CHUNK = 16
"""Numbers that are brought into bytes at a time."""

_LARGEST = {1: 127.0, 3: 127.0 * 2**16 + 127.0 * 2**8 + 127.0}
"""What the digits hold, by how many there are."""

_POWER = 22
"""The power of 2 of the largest of three digits' numbers, or one less."""

_FLOAT_BIAS, _HIGHEST = 127, 253
"""Of exponents of float32: what is added to them, and the largest whose reciprocal is a normal number."""

_MAGNITUDE, _INFINITY = 0x7FFFFFFF, 0x7F800000
"""The bits of a float32 without its sign, and those of an infinity, which only those of NaN exceed."""


@dataclass(frozen=True)
class BlockDigits:
    """The layout of a block of a row, in int32: `head` numbers, then for each part of `part` numbers of the row its
    digits, the lowest first.

    Attributes:
        digits: How many a number has.
        part: Numbers of a row whose digits lie together.
        zeros: What zero points the weights have.
    """

    digits: int
    part: int
    zeros: str

    @property
    def head(self) -> int:
        """How many numbers are before the digits: the unit, the sum of the block, and what the sums of each digit's
        products begin with, or by what the zero points are multiplied for that."""
        return 2 + self.digits

    def size(self, block: int) -> int:
        """Return the int32 of a block of so many numbers."""
        return self.head + self.digits * block // 4


@dataclass(frozen=True)
class DigitsFunction:
    """The function for blocks of this layout."""

    layout: BlockDigits

    @property
    def name(self) -> str:
        """The function's."""
        layout = self.layout
        return f"fusion_nbits_digits_{layout.digits}_of_{layout.part}_{layout.zeros}"

    def call(self, depth: Expr, blocks: Expr, parts: Expr, row: Expr, result: Expr) -> tirx.Stmt:
        """Return the call for a row of `depth` numbers, with loads of its first number and of the first of the
        result."""
        numbers = [int64(each) for each in (depth, blocks, parts)]
        return tirx.Evaluate(
            tirx.call_extern("int32", self.name, *numbers, tirx.address_of(row), tirx.address_of(result))
        )

    @property
    def llvm_ir(self) -> str:
        """Its text."""
        n, layout = CHUNK, self.layout
        given = "i64 %depth, i64 %blocks, i64 %parts, ptr noalias %row, ptr noalias %result"
        lines = [
            *_DECLARATIONS,
            f"define i32 @{self.name}({given}) {{",
            "entry:",
            f"  %block.numbers = mul nsw i64 %parts, {layout.part}",
            f"  %block.digits = mul nsw i64 %parts, {layout.digits * layout.part // 4}",
            f"  %block.size = add nsw i64 %block.digits, {layout.head}",
            "  br label %block",
            "block:",
            "  %b = phi i64 [ 0, %entry ], [ %b.next, %store ]",
            "  %begin = mul nsw i64 %b, %block.numbers",
            "  %head.at = mul nsw i64 %b, %block.size",
            "  %head = getelementptr i32, ptr %result, i64 %head.at",
            "  br label %seek",
            "seek:",
            "  %c = phi i64 [ 0, %block ], [ %c.next, %seek ]",
            f"  %most = phi {_INTS} [ zeroinitializer, %block ], [ %most.next, %seek ]",
            *_load("seek", "%c"),
            f"  %bits = bitcast {_FLOATS} %x.seek to {_INTS}",
            f"  %abs = and {_INTS} %bits, splat (i32 {_MAGNITUDE})",
            f"  %most.next = call {_INTS} @llvm.umax.v{n}i32({_INTS} %most, {_INTS} %abs)",
            f"  %c.next = add nuw nsw i64 %c, {n}",
            "  %more.c = icmp slt i64 %c.next, %block.numbers",
            "  br i1 %more.c, label %seek, label %choose",
            "choose:",
            f"  %largest = call i32 @llvm.vector.reduce.umax.v{n}i32({_INTS} %most.next)",
            "  %largest.float = bitcast i32 %largest to float",
            f"  %is.finite = icmp ult i32 %largest, {_INFINITY}",
            *self._unit(),
            f"  %unit = select i1 %is.finite, float %unit.finite, float {_hex(float('nan'))}",
            f"  %factor.lane = insertelement {_FLOATS} poison, float %factor, i64 0",
            f"  %factor.all = shufflevector {_FLOATS} %factor.lane, {_FLOATS} poison, {_INTS} zeroinitializer",
            f"  %body = getelementptr i32, ptr %head, i64 {layout.head}",
            *self._parts(),
            *self._store(),
            "  %b.next = add nuw nsw i64 %b, 1",
            "  %more.b = icmp slt i64 %b.next, %blocks",
            "  br i1 %more.b, label %block, label %done",
            "done:", "  ret i32 0", "}", "",
        ]  # fmt: skip
        return "\n".join(lines)

    def _parts(self) -> Iterator[str]:
        """Yield the loop over the parts of a block, which stores digits and adds up each of their places: `%sum`."""
        layout, digits, chunks = self.layout, range(self.layout.digits), self._chunks
        yield "  br label %part"
        yield "part:"
        yield "  %p = phi i64 [ 0, %choose ], [ %p.next, %part ]"
        for d in digits:
            yield f"  %sum.{d}.0 = phi {_INTS} [ zeroinitializer, %choose ], [ %sum.{d}.{chunks}, %part ]"
        yield f"  %part.at = mul nsw i64 %p, {layout.digits * layout.part}"
        yield "  %part.to = getelementptr i8, ptr %body, i64 %part.at"
        yield f"  %part.begin = mul nsw i64 %p, {layout.part}"
        for c in range(chunks):
            yield f"  %chunk.{c} = add nsw i64 %part.begin, {c * CHUNK}"
            yield from _load(f"{c}", f"%chunk.{c}")
            yield f"  %scaled.{c} = fmul {_FLOATS} %x.{c}, %factor.all"
            yield f"  %round.{c} = call {_FLOATS} @llvm.rint.v{CHUNK}f32({_FLOATS} %scaled.{c})"
            yield f"  %whole.{c} = fptosi {_FLOATS} %round.{c} to {_INTS}"
            yield f"  %rest.0.{c} = freeze {_INTS} %whole.{c}"  # of what is not finite it is anything
            for d in digits:
                yield f"  %byte.{d}.{c} = trunc {_INTS} %rest.{d}.{c} to {_BYTES}"
                yield f"  %digit.{d}.{c} = sext {_BYTES} %byte.{d}.{c} to {_INTS}"
                yield f"  %sum.{d}.{c + 1} = add {_INTS} %sum.{d}.{c}, %digit.{d}.{c}"
                yield f"  %above.{d}.{c} = sub {_INTS} %rest.{d}.{c}, %digit.{d}.{c}"
                yield f"  %rest.{d + 1}.{c} = ashr {_INTS} %above.{d}.{c}, splat (i32 8)"
                yield f"  %to.{d}.{c} = getelementptr i8, ptr %part.to, i64 {d * layout.part + c * CHUNK}"
                yield f"  store {_BYTES} %byte.{d}.{c}, ptr %to.{d}.{c}, align 4"
        yield "  %p.next = add nuw nsw i64 %p, 1"
        yield "  %more.p = icmp slt i64 %p.next, %parts"
        yield "  br i1 %more.p, label %part, label %store"

    def _store(self) -> Iterator[str]:
        """Yield the stores of what is before the digits."""
        yield "store:"
        value = _hex(0.0)
        for d in reversed(range(self.layout.digits)):
            yield f"  %all.{d} = call i32 @llvm.vector.reduce.add.v{CHUNK}i32({_INTS} %sum.{d}.{self._chunks})"
            yield f"  %all.float.{d} = sitofp i32 %all.{d} to float"
            yield f"  %moved.{d} = fmul float {value}, 256.0"
            yield f"  %value.{d} = fadd float %moved.{d}, %all.float.{d}"
            yield f"  %start.{d} = {self._start(d)}"
            yield f"  %start.to.{d} = getelementptr i32, ptr %head, i64 {2 + d}"
            yield f"  store i32 %start.{d}, ptr %start.to.{d}, align 4"
            value = f"%value.{d}"
        yield f"  %block.sum = fmul float {value}, %unit"
        yield "  %sum.to = getelementptr i32, ptr %head, i64 1"
        yield "  store float %unit, ptr %head, align 4"
        yield "  store float %block.sum, ptr %sum.to, align 4"

    @property
    def _chunks(self) -> int:
        """Chunks of a part."""
        return self.layout.part // CHUNK

    def _unit(self) -> list[str]:
        """Return `%factor`, by which numbers are multiplied, and its reciprocal."""
        largest = _hex(_LARGEST[self.layout.digits])
        if self.layout.digits == 1:
            return [
                f"  %quotient = fdiv float {largest}, %largest.float",
                f"  %factor = call float @llvm.minnum.f32(float %quotient, float {_hex(2.0**126)})",
                f"  %unit.finite = fdiv float {_hex(1.0)}, %factor",  # of the least numbers too, whose factor is less
            ]
        return [
            "  %exponent = lshr i32 %largest, 23",
            f"  %opposite = sub nsw i32 {_POWER + 2 * _FLOAT_BIAS}, %exponent",
            f"  %high = call i32 @llvm.umin.i32(i32 %opposite, i32 {_HIGHEST})",
            "  %high.bits = shl i32 %high, 23",
            "  %high.float = bitcast i32 %high.bits to float",
            "  %reached = fmul float %largest.float, %high.float",
            f"  %is.over = fcmp ogt float %reached, {largest}",
            "  %one.over = zext i1 %is.over to i32",
            "  %power = sub nsw i32 %high, %one.over",
            "  %factor.bits = shl i32 %power, 23",
            "  %factor = bitcast i32 %factor.bits to float",
            f"  %reciprocal = sub nsw i32 {2 * _FLOAT_BIAS}, %power",
            "  %unit.bits = shl i32 %reciprocal, 23",
            "  %unit.finite = bitcast i32 %unit.bits to float",
        ]

    def _start(self, digit: int) -> str:
        """Return what a digit's sum of products begins with, or by what that is multiplied."""
        if self.layout.zeros == FOR_INTEGERS:
            return f"and i32 %all.{digit}, 65535"  # an int16 beside 0
        return f"mul i32 %all.{digit}, {-NBITS_MIDDLE}"


_FLOATS, _INTS, _BYTES, _MASK = (f"<{CHUNK} x {kind}>" for kind in ("float", "i32", "i8", "i1"))
_DECLARATIONS = (
    f"declare {_FLOATS} @llvm.masked.load.v{CHUNK}f32.p0(ptr, {_MASK}, {_FLOATS})",
    f"declare {_FLOATS} @llvm.rint.v{CHUNK}f32({_FLOATS})",
    f"declare {_INTS} @llvm.umax.v{CHUNK}i32({_INTS}, {_INTS})",
    f"declare i32 @llvm.vector.reduce.umax.v{CHUNK}i32({_INTS})",
    f"declare i32 @llvm.vector.reduce.add.v{CHUNK}i32({_INTS})",
    "declare i32 @llvm.umin.i32(i32, i32)",
    "declare i64 @llvm.smin.i64(i64, i64)",
    "declare float @llvm.minnum.f32(float, float)",
    "",
)


def _load(name: str, chunk: str) -> Iterator[str]:
    """Yield the numbers of a chunk of the block as `%x.name`, 0 behind the end of the row."""
    places = ", ".join(f"i32 {lane}" for lane in range(CHUNK))
    yield f"  %at.{name} = add nsw i64 %begin, {chunk}"
    yield f"  %left.{name} = sub nsw i64 %depth, %at.{name}"
    yield f"  %few.{name} = call i64 @llvm.smin.i64(i64 %left.{name}, i64 {CHUNK})"
    yield f"  %few.32.{name} = trunc i64 %few.{name} to i32"
    yield f"  %few.lane.{name} = insertelement {_INTS} poison, i32 %few.32.{name}, i64 0"
    yield f"  %few.all.{name} = shufflevector {_INTS} %few.lane.{name}, {_INTS} poison, {_INTS} zeroinitializer"
    yield f"  %mask.{name} = icmp slt {_INTS} <{places}>, %few.all.{name}"
    yield f"  %from.{name} = getelementptr float, ptr %row, i64 %at.{name}"
    operands = f"ptr align 4 %from.{name}, {_MASK} %mask.{name}, {_FLOATS} zeroinitializer"
    yield f"  %x.{name} = call {_FLOATS} @llvm.masked.load.v{CHUNK}f32.p0({operands})"


def _hex(value: float) -> str:
    """Return a number that float32 holds as LLVM reads it."""
    return f"0x{struct.unpack('>Q', struct.pack('>d', value))[0]:016X}"
