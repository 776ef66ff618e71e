"""The sums of a tile of rows in a panel of weights of 4 bits: a function in LLVM's own language.

    switch height                                     a body for each
      acc[height, vectors] = 0                        float32
      for block of k
        s[height, vectors, digits] = start            int32; the sum of products with zero points, which is known
        for part of the block
          for vector of weights                       8 of k of each column
            low, high = the halves of their bytes
            s += low * digits, high * digits          VPDPBUSD; VPMADDUBSW, whose sums of a part int16 holds
        acc += scales * unit * (s0 + 2^8 s1 + 2^16 s2)
      sums = acc

Bytes are summed exactly, so that what is rounded is one number for each block, and three digits take less than to bring
weights into float32, which takes a shift, a look-up and a multiply-add for each vector of these.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from tvm import tirx

from backends.cpu.costs import CACHE_LINE
from backends.cpu.kernels.matmul_nbits.digits_function import BlockDigits
from backends.cpu.kernels.matmul_nbits.read import FOR_FLOATS, FOR_INTEGERS, NO_ZEROS
from backends.tensorir.emit import Expr, int64

WEIGHTS = 8
"""Weights of a column in a vector of weights."""

_AHEAD = 1024
"""Bytes of weights that are fetched ahead, not measured."""

_LOWER = 0x0F0F0F0F
"""The lower halves of the bytes of an int32."""

_PRODUCTS_OF_BYTES = {8: "avx2.pmadd.ub.sw", 16: "avx512.pmaddubs.w.512"}
_SUMS_OF_PAIRS = {8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}
"""LLVM's names of VPMADDUBSW and VPMADDWD, by float32 lanes of a vector."""


@dataclass(frozen=True)
class SumsFunction:
    """A function for tiles of `vectors` vectors of `lanes` and up to `tallest` rows.

    Attributes:
        scale: The dtype of scales.
        fused: Whether VPDPBUSD sums the products.
    """

    layout: BlockDigits
    tallest: int
    vectors: int
    lanes: int
    scale: str
    fused: bool

    @property
    def name(self) -> str:
        """The function's."""
        layout, kind = self.layout, "fused" if self.fused else "pairs"
        tile = f"{self.tallest}x{self.vectors}v{self.lanes}"
        return f"fusion_nbits_sums_{tile}_{layout.digits}_of_{layout.part}_{layout.zeros}_{self.scale}_{kind}"

    def call(self, sizes: tuple[Expr, Expr, Expr, Expr], operands: list[Expr]) -> tirx.Stmt:
        """Return the call for (rows, blocks, parts of a block, int32 between rows' digits), with loads of the first
        digit, weight, scale, zero point, if there are any, and sum."""
        addresses = [tirx.address_of(load) for load in operands]
        return tirx.Evaluate(tirx.call_extern("int32", self.name, *map(int64, sizes), *addresses))

    @property
    def llvm_ir(self) -> str:
        """Its text."""
        operands = ["digits", "weights", "scales", *(["zeros"] * self.has_zeros), "sums"]
        given = [f"i64 %{name}" for name in ("height", "blocks", "parts", "pitch")]
        given += [f"ptr noalias %{name}" for name in operands]
        cases = " ".join(f"i64 {height}, label %rows.{height}" for height in range(1, self.tallest + 1))
        return "\n".join([
            *self._declarations(),
            f"define i32 @{self.name}({', '.join(given)}) {{",
            f"  switch i64 %height, label %done [ {cases} ]",
            *(line for height in range(1, self.tallest + 1) for line in _Tile(self, height).lines()),
            "done:", "  ret i32 0", "}",
            '!0 = !{!"llvm.loop.unroll.disable"}', "!1 = distinct !{!1, !0}", "",
        ])  # fmt: skip

    @property
    def has_zeros(self) -> bool:
        """Whether zero points are an operand."""
        return self.layout.zeros != NO_ZEROS

    @property
    def floats(self) -> str:
        """The types of vectors: of float32, and of as many int32, twice as many int16, four times as many bytes."""
        return f"<{self.lanes} x float>"

    @property
    def ints(self) -> str:
        """See `floats`."""
        return f"<{self.lanes} x i32>"

    @property
    def pairs(self) -> str:
        """See `floats`."""
        return f"<{2 * self.lanes} x i16>"

    @property
    def bytes(self) -> str:
        """See `floats`."""
        return f"<{4 * self.lanes} x i8>"

    @property
    def part_bytes(self) -> int:
        """Bytes of the weights of a part."""
        return self.layout.part // WEIGHTS * self.vectors * 4 * self.lanes

    @property
    def part_digits(self) -> int:
        """int32 of the digits of a part."""
        return self.layout.digits * self.layout.part // 4

    @property
    def moving(self) -> dict[str, tuple[str, str]]:
        """What goes on with each block: the type of its elements, and how many; `HEIGHT` stands for that of a tile."""
        of_columns = f"{self.vectors * self.lanes}"
        found = {
            "digits": ("i32", "%block.size.HEIGHT"), "weights": ("i8", "%weights.size.HEIGHT"),
            "scales": ("float" if self.scale == "float32" else "half", of_columns),
        }  # fmt: skip
        if self.has_zeros:
            found["zeros"] = ("i8" if self.layout.zeros == FOR_INTEGERS else "float", of_columns)
        return found

    def multiply_add(self, a: str, b: str, c: str) -> str:
        """Return `a * b + c` of vectors of float32."""
        floats = self.floats
        return f"call {floats} @llvm.fmuladd.v{self.lanes}f32({floats} {a}, {floats} {b}, {floats} {c})"

    def sum_pairs(self, a: str, b: str) -> str:
        """Return the sums of both products of each pair of int16."""
        return f"call {self.ints} @llvm.x86.{_SUMS_OF_PAIRS[self.lanes]}({self.pairs} {a}, {self.pairs} {b})"

    def multiply_bytes(self, a: str, b: str) -> str:
        """Return the sums of both products of each pair of bytes, uint8 by int8."""
        octets = self.bytes
        return f"call {self.pairs} @llvm.x86.{_PRODUCTS_OF_BYTES[self.lanes]}({octets} {a}, {octets} {b})"

    def dot(self, total: str, a: str, b: str) -> str:
        """Return `total` and the four products of bytes, uint8 by int8, of each int32."""
        ints = self.ints
        return f"call {ints} @llvm.x86.avx512.vpdpbusd.{32 * self.lanes}({ints} {total}, {ints} {a}, {ints} {b})"

    def _declarations(self) -> Iterator[str]:
        floats, ints, pairs, octets = self.floats, self.ints, self.pairs, self.bytes
        yield f"declare {floats} @llvm.fmuladd.v{self.lanes}f32({floats}, {floats}, {floats})"
        yield "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)"
        if self.fused:
            yield f"declare {ints} @llvm.x86.avx512.vpdpbusd.{32 * self.lanes}({ints}, {ints}, {ints})"
        else:
            yield f"declare {pairs} @llvm.x86.{_PRODUCTS_OF_BYTES[self.lanes]}({octets}, {octets})"
        if not self.fused or self.layout.zeros == FOR_INTEGERS:
            yield f"declare {ints} @llvm.x86.{_SUMS_OF_PAIRS[self.lanes]}({pairs}, {pairs})"


@dataclass(frozen=True)
class _Tile:
    """The body for a height; its names end in that, behind row, vector and digit.

    Attributes:
        of: The function.
    """

    of: SumsFunction
    height: int

    def lines(self) -> Iterator[str]:
        """Yield the loops."""
        of, h = self.of, self.height
        yield from (
            f"rows.{h}:",
            f"  %block.digits.{h} = mul nsw i64 %parts, {of.part_digits}",
            f"  %block.size.{h} = add nsw i64 %block.digits.{h}, {of.layout.head}",
            f"  %weights.size.{h} = mul nsw i64 %parts, {of.part_bytes}",
            f"  br label %block.{h}",
            f"block.{h}:",
            f"  %b.{h} = phi i64 [ 0, %rows.{h} ], [ %b.next.{h}, %end.{h} ]",
        )
        for name in of.moving:
            yield f"  %{name}.{h} = phi ptr [ %{name}, %rows.{h} ], [ %{name}.next.{h}, %end.{h} ]"
        for i, v in self._sums:
            sources = f"[ zeroinitializer, %rows.{h} ], [ %acc.next.{i}.{v}.{h}, %end.{h} ]"
            yield f"  %acc.{i}.{v}.{h} = phi {of.floats} {sources}"
        yield f"  %row.0.{h} = getelementptr i32, ptr %digits.{h}, i64 0"
        for i in range(1, h):
            yield f"  %row.{i}.{h} = getelementptr i32, ptr %row.{i - 1}.{h}, i64 %pitch"
        yield from self._start()
        yield f"  br label %part.{h}"
        yield from self._parts()
        yield f"end.{h}:"
        yield from self._add_block()
        for name, (kind, size) in of.moving.items():
            apart = size.replace("HEIGHT", f"{h}")
            yield f"  %{name}.next.{h} = getelementptr {kind}, ptr %{name}.{h}, i64 {apart}"
        yield from (
            f"  %b.next.{h} = add nuw nsw i64 %b.{h}, 1",
            f"  %more.b.{h} = icmp slt i64 %b.next.{h}, %blocks",
            f"  br i1 %more.b.{h}, label %block.{h}, label %store.{h}",
            f"store.{h}:",
        )
        for i, v in self._sums:
            yield f"  %to.{i}.{v}.{h} = getelementptr float, ptr %sums, i64 {(i * of.vectors + v) * of.lanes}"
            yield f"  store {of.floats} %acc.next.{i}.{v}.{h}, ptr %to.{i}.{v}.{h}, align 4"
        yield "  br label %done"

    @cached_property
    def _sums(self) -> list[tuple[int, int]]:
        return list(product(range(self.height), range(self.of.vectors)))

    @cached_property
    def _of_digits(self) -> list[tuple[int, int, int]]:
        return [(i, v, d) for (i, v), d in product(self._sums, range(self.of.layout.digits))]

    @property
    def _numbers(self) -> Iterator[tuple[int, int]]:
        """Each row and digit."""
        return product(range(self.height), range(self.of.layout.digits))

    def _all(self, name: str, base: str, at: int, kind: str) -> Iterator[str]:
        """Yield a vector `name` of the number that is `at` behind `base` in all lanes."""
        vector = f"<{self.of.lanes} x {kind}>"
        yield f"  %{name}.at = getelementptr i32, ptr {base}, i64 {at}"
        yield f"  %{name}.one = load {kind}, ptr %{name}.at, align 4"
        yield f"  %{name}.lane = insertelement {vector} poison, {kind} %{name}.one, i64 0"
        yield f"  %{name} = shufflevector {vector} %{name}.lane, {vector} poison, {self.of.ints} zeroinitializer"

    def _start(self) -> Iterator[str]:
        """Yield what the sums of a block begin with: `%start`."""
        of, h = self.of, self.height
        by_zeros = of.layout.zeros == FOR_INTEGERS
        for v in range(of.vectors) if by_zeros else ():
            yield f"  %zero.at.{v}.{h} = getelementptr i8, ptr %zeros.{h}, i64 {v * of.lanes}"
            yield f"  %zero.own.{v}.{h} = load <{of.lanes} x i8>, ptr %zero.at.{v}.{h}, align 1"
            yield f"  %zero.wide.{v}.{h} = sext <{of.lanes} x i8> %zero.own.{v}.{h} to {of.ints}"
            yield f"  %zero.{v}.{h} = bitcast {of.ints} %zero.wide.{v}.{h} to {of.pairs}"
        for i, d in self._numbers:
            yield from self._all(f"known.{i}.{d}.{h}", f"%row.{i}.{h}", 2 + d, "i32")
            if by_zeros:
                yield f"  %known.pairs.{i}.{d}.{h} = bitcast {of.ints} %known.{i}.{d}.{h} to {of.pairs}"
        for i, v, d in self._of_digits:
            value = f"add {of.ints} %known.{i}.{d}.{h}, zeroinitializer"
            if by_zeros:
                value = of.sum_pairs(f"%zero.{v}.{h}", f"%known.pairs.{i}.{d}.{h}")
            yield f"  %start.{i}.{v}.{d}.{h} = {value}"

    def _parts(self) -> Iterator[str]:
        """Yield the loop over the parts of a block, which makes `%s.next`."""
        of, h = self.of, self.height
        yield from (
            f"part.{h}:",
            f"  %p.{h} = phi i64 [ 0, %block.{h} ], [ %p.next.{h}, %part.{h} ]",
            f"  %w.{h} = phi ptr [ %weights.{h}, %block.{h} ], [ %w.next.{h}, %part.{h} ]",
            f"  %at.{h} = phi i64 [ {of.layout.head}, %block.{h} ], [ %at.next.{h}, %part.{h} ]",
        )
        for i, v, d in self._of_digits:
            sources = f"[ %start.{i}.{v}.{d}.{h}, %block.{h} ], [ %s.next.{i}.{v}.{d}.{h}, %part.{h} ]"
            yield f"  %s.{i}.{v}.{d}.{h} = phi {of.ints} {sources}"
        for i in range(h):
            yield f"  %x.{i}.{h} = getelementptr i32, ptr %row.{i}.{h}, i64 %at.{h}"
        yield from self._products_of_pairs() if not of.fused else self._products()
        yield from (
            f"  %w.next.{h} = getelementptr i8, ptr %w.{h}, i64 {of.part_bytes}",
            f"  %at.next.{h} = add nuw nsw i64 %at.{h}, {of.part_digits}",
            f"  %p.next.{h} = add nuw nsw i64 %p.{h}, 1",
            f"  %more.p.{h} = icmp slt i64 %p.next.{h}, %parts",
            f"  br i1 %more.p.{h}, label %part.{h}, label %end.{h}, !llvm.loop !1",
        )

    def _halves(self, t: int) -> Iterator[str]:
        """Yield vector `t` of the weights of a part as `%w.0` and `%w.1`, the lower and upper halves of their bytes."""
        of, h = self.of, self.height
        for v in range(of.vectors):
            own, at = f"{v}.{t}.{h}", (t * of.vectors + v) * 4 * of.lanes
            yield f"  %from.{own} = getelementptr i8, ptr %w.{h}, i64 {at}"
            yield f"  %both.{own} = load {of.ints}, ptr %from.{own}, align 4"
            if at % CACHE_LINE == 0:
                yield f"  %ahead.{own} = getelementptr i8, ptr %from.{own}, i64 {_AHEAD}"
                yield f"  call void @llvm.prefetch.p0(ptr %ahead.{own}, i32 0, i32 3, i32 1)"
            yield f"  %w.0.{own} = and {of.ints} %both.{own}, splat (i32 {_LOWER})"
            yield f"  %down.{own} = lshr {of.ints} %both.{own}, splat (i32 4)"
            yield f"  %w.1.{own} = and {of.ints} %down.{own}, splat (i32 {_LOWER})"

    def _steps(self) -> Iterator[tuple[int, list[str]]]:
        """Yield each step of four of k with what loads its weights, `%w`, and digits, `%x`."""
        steps = self.of.layout.part // 4
        for step in range(steps):
            t, is_upper = divmod(step, 2)
            loads = [] if is_upper else list(self._halves(t))
            for i, d in self._numbers:
                name = f"x.{i}.{d}.{step}.{self.height}"
                loads += self._all(name, f"%x.{i}.{self.height}", d * steps + step, "i32")
            yield step, loads

    def _weight(self, step: int, v: int) -> str:
        return f"%w.{step % 2}.{v}.{step // 2}.{self.height}"

    def _products(self) -> Iterator[str]:
        """Yield the products of a part by VPDPBUSD."""
        h, last = self.height, self.of.layout.part // 4 - 1
        so_far = {key: f"%s.{'.'.join(map(str, key))}.{h}" for key in self._of_digits}
        for step, loads in self._steps():
            yield from loads
            for i, v, d in self._of_digits:
                made = f"%s.next.{i}.{v}.{d}.{h}" if step == last else f"%dot.{i}.{v}.{d}.{step}.{h}"
                yield f"  {made} = {self.of.dot(so_far[i, v, d], self._weight(step, v), f'%x.{i}.{d}.{step}.{h}')}"
                so_far[i, v, d] = made

    def _products_of_pairs(self) -> Iterator[str]:
        """Yield the products of a part by VPMADDUBSW, added up in int16, and their sums by VPMADDWD."""
        of, h = self.of, self.height
        so_far: dict[tuple[int, int, int], str] = {}
        for step, loads in self._steps():
            yield from loads
            for i, v, d in self._of_digits:
                name = f"{i}.{v}.{d}.{step}.{h}"
                yield f"  %bytes.w.{name} = bitcast {of.ints} {self._weight(step, v)} to {of.bytes}"
                yield f"  %bytes.x.{name} = bitcast {of.ints} %x.{i}.{d}.{step}.{h} to {of.bytes}"
                yield f"  %two.{name} = {of.multiply_bytes(f'%bytes.w.{name}', f'%bytes.x.{name}')}"
                if (i, v, d) in so_far:
                    yield f"  %more.{name} = add {of.pairs} {so_far[i, v, d]}, %two.{name}"
                so_far[i, v, d] = f"%more.{name}" if (i, v, d) in so_far else f"%two.{name}"
        for i, v, d in self._of_digits:
            own = f"{i}.{v}.{d}.{h}"
            yield f"  %four.{own} = {of.sum_pairs(so_far[i, v, d], 'splat (i16 1)')}"
            yield f"  %s.next.{own} = add {of.ints} %s.{own}, %four.{own}"

    def _scales(self) -> Iterator[str]:
        """Yield what belongs to a block: `%scale` of its columns, and of its rows `%unit`."""
        of, h = self.of, self.height
        kind, _ = of.moving["scales"]
        to_float = "bitcast" if of.scale == "float32" else "fpext"
        for v in range(of.vectors):
            vector = f"<{of.lanes} x {kind}>"
            yield f"  %scale.at.{v}.{h} = getelementptr {kind}, ptr %scales.{h}, i64 {v * of.lanes}"
            yield f"  %scale.own.{v}.{h} = load {vector}, ptr %scale.at.{v}.{h}, align 2"
            yield f"  %scale.{v}.{h} = {to_float} {vector} %scale.own.{v}.{h} to {of.floats}"
            if of.layout.zeros == FOR_FLOATS:
                yield f"  %zero.at.{v}.{h} = getelementptr float, ptr %zeros.{h}, i64 {v * of.lanes}"
                yield f"  %zero.{v}.{h} = load {of.floats}, ptr %zero.at.{v}.{h}, align 4"
        for i in range(h):
            yield from self._all(f"unit.{i}.{h}", f"%row.{i}.{h}", 0, "float")
            if of.layout.zeros == FOR_FLOATS:
                yield from self._all(f"block.sum.{i}.{h}", f"%row.{i}.{h}", 1, "float")

    def _add_block(self) -> Iterator[str]:
        """Yield the sums with those of a block: `%acc.next`."""
        of, h = self.of, self.height
        yield from self._scales()
        for i, v in self._sums:
            own, value = f"{i}.{v}.{h}", ""
            for d in reversed(range(of.layout.digits)):
                yield f"  %float.{d}.{own} = sitofp {of.ints} %s.next.{i}.{v}.{d}.{h} to {of.floats}"
                if value:
                    yield f"  %value.{d}.{own} = {of.multiply_add(value, 'splat (float 256.0)', f'%float.{d}.{own}')}"
                value = f"%value.{d}.{own}" if value else f"%float.{d}.{own}"
            yield f"  %scaled.{own} = fmul {of.floats} {value}, %unit.{i}.{h}"
            value = f"%scaled.{own}"
            if of.layout.zeros == FOR_FLOATS:
                yield f"  %less.{own} = {of.multiply_add(f'%zero.{v}.{h}', f'%block.sum.{i}.{h}', value)}"
                value = f"%less.{own}"
            yield f"  %acc.next.{own} = {of.multiply_add(value, f'%scale.{v}.{h}', f'%acc.{own}')}"
