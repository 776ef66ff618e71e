"""The sums of a tile of rows, whose height only a call knows, in a panel of weights: a function in LLVM's own language.

    switch height                                   bodies for some; a lower tile computes its last row several times
      acc[height, vectors] = 0                      registers
      for k: acc += rows[i, k] * weights[vector, k]
        fetch weights: of a later step where a vector is a line, else a part of a later panel where L2 has not all
        in the tallest body                         those of lower tiles have hardly anything to wait for
          fetch a part of the next tile's rows
          fetch line k of what the tile's result is written to, if not before: a loop of its own, as lines are few
      sums = acc

TVM's passes see the call alone, and products of the same rows share it. The heights of MiniLM's queries, keys and
values, written in TensorIR for each of the three, made LLVM take four times as long as for the static kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import product

from tvm import tirx

from backends.cpu.costs import CACHE_LINE, LINES_AT_ONCE, PREFETCH_STEPS, UNROLLED_STEPS
from backends.cpu.kernels.shared.extents import vectors_are_lines
from backends.tensorir.emit import Expr, int64

_READ, _WRITE = 0, 1
"""What `llvm.prefetch` is told that a line is fetched for."""

_GENERAL_REGISTERS = 15
"""Those of x86 for addresses and counters but that of the stack; NEON's processors have twice as many."""

_REGISTERS = {8: ("ymm", 16), 16: ("zmm", 32)}
"""By lanes, what x86 calls its vector registers and how many it has. Vectors of 4 lanes are NEON's, which have 32."""


@dataclass(frozen=True)
class TileCall:
    """What a call is about.

    Attributes:
        height: Rows of the tile.
        product: The place of its product among those that share the function.
        vector: The vector of weights with which the panel begins.
        turn, panels: How many of the tile's panels were computed before, and how many there are.
        pitch, result_pitch: Elements between rows, and between those of the result.
        stride: Elements between vectors of weights.
        depth: Steps of k.
        later: Elements from the panel to what is fetched of a later one.
        later_bytes: How many bytes of that each step fetches; 0 where there is nothing.
    """

    height: Expr
    product: Expr
    vector: Expr
    turn: Expr
    panels: Expr
    pitch: Expr
    result_pitch: Expr
    stride: Expr
    depth: Expr
    later: Expr
    later_bytes: Expr


@dataclass(frozen=True)
class _Loop:
    """A loop over steps of k.

    Attributes:
        name: What its names end in.
        before: The block before it.
        end: The step before which it ends; it makes one at least.
        exit: The block behind it.
        number: Of what it tells LLVM.
        behind: The loop that it goes on with; "" where it begins.
    """

    name: str
    before: str
    end: str
    exit: str
    number: int
    behind: str = ""


@dataclass(frozen=True)
class _Moving:
    """An address from which each step of k fetches; one that is added to costs a step an instruction, a product with k
    four.

    Attributes:
        first: What is to be done once.
        start: Where it begins.
        apart: By how many bytes it moves on.
    """

    name: str
    first: tuple[str, ...]
    start: str
    apart: str

    def step(self, t: str) -> list[str]:
        """Return what a step of the loop `t` does."""
        return [
            f"  %{self.name}.next.{t} = getelementptr i8, ptr %{self.name}.at.{t}, i64 {self.apart}",
            f"  call void @llvm.prefetch.p0(ptr %{self.name}.at.{t}, i32 {_READ}, i32 3, i32 1)",
        ]


@dataclass(frozen=True)
class TileSums:
    """A function for tiles of `vectors` vectors of `lanes` and up to the last of `heights` rows.

    Attributes:
        heights: Those that have bodies, in order.
        products: How many share it, each with weights of its own.
        fetches_rows: Whether it fetches the rows behind the tile, which lie behind one another, all panels a part.
        fetches_results: Whether it fetches, for writing, the lines of the result that the tile has in the panel.
        fetches_panels: Whether each step fetches a part of a later panel.
    """

    heights: tuple[int, ...]
    vectors: int
    lanes: int
    products: int
    fetches_rows: bool = False
    fetches_results: bool = False
    fetches_panels: bool = False

    @property
    def name(self) -> str:
        """The function's."""
        heights = "_".join(map(str, self.heights))
        fetched = {"rows": self.fetches_rows, "results": self.fetches_results, "panels": self.fetches_panels}
        kind = "".join(f"_fetching_{name}" for name, wanted in fetched.items() if wanted)
        return f"fusion_tile_sums{kind}_{self.products}_{self.vectors}v{self.lanes}_{heights}"

    @property
    def is_finished(self) -> bool:
        """Whether its loops are as they are to run; others ask LLVM's optimiser for several steps in one."""
        return vectors_are_lines(self.lanes)

    def call(
        self, at: TileCall, rows: tirx.BufferLoad, sums: tirx.BufferLoad, weights: Sequence[Expr],
        results: Sequence[Expr] = (),
    ) -> tirx.Stmt:  # fmt: skip
        """Return the call with the addresses of the first row, the first sum, each product's weights and, where it
        fetches results, of the first element of that row in each product's."""
        numbers = [int64(getattr(at, field.name)) for field in fields(at)]
        addresses = [tirx.address_of(load) for load in (rows, sums, *weights, *results)]
        return tirx.Evaluate(tirx.call_extern("int32", self.name, *numbers, *addresses))

    @property
    def llvm_ir(self) -> str:
        """Its text."""
        vector, lanes = self._vector, self.lanes
        numbers = ", ".join(f"i64 %{field.name}" for field in fields(TileCall))
        addresses = ["rows", "sums", *self._of_products("weights")]
        if self.fetches_results:
            addresses += self._of_products("results")
        pointers = ", ".join(f"ptr %{name}" for name in addresses)
        served = {h: next(body for body in self.heights if body >= h) for h in range(1, self.heights[-1] + 1)}
        cases = " ".join(f"i64 {height}, label %rows.{body}" for height, body in served.items())
        bodies = "\n".join(self._body(height) for height in self.heights)
        loops = "\n".join(f"!{place} = distinct !{{!{place}, !0}}" for place in range(1, len(self.heights) + 2))
        unrolled = f'"llvm.loop.unroll.count", i32 {UNROLLED_STEPS}'
        if self.is_finished:
            unrolled = '"llvm.loop.unroll.disable"'
        return f"""
declare {vector} @llvm.fmuladd.v{lanes}f32({vector}, {vector}, {vector})
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
declare i64 @llvm.smin.i64(i64, i64)

define i32 @{self.name}({numbers}, {pointers}) {{
{self._select()}
{self._clobber()}
  switch i64 %height, label %done [ {cases} ]
{bodies}
done:
{self._clobber()}
  ret i32 0
}}

!0 = !{{!{unrolled}}}
{loops}
"""

    @property
    def _vector(self) -> str:
        return f"<{self.lanes} x float>"

    def _of_products(self, name: str) -> list[str]:
        return [f"{name}.{place}" for place in range(self.products)]

    def _select(self) -> str:
        """Return the addresses of the product as `%packed` and `%result`."""
        lines = [f"  %is.{place} = icmp eq i64 %product, {place}" for place in range(1, self.products)]
        for found, name in (("packed", "weights"), ("result", "results"))[: 1 + self.fetches_results]:
            first, *others = (f"%{each}" for each in self._of_products(name))
            for place, each in enumerate(others, 1):
                lines.append(f"  %{found}.{place} = select i1 %is.{place}, ptr {each}, ptr {first}")
                first = f"%{found}.{place}"
            lines.append(f"  %{found} = getelementptr i8, ptr {first}, i64 0")
        return "\n".join(lines)

    def _clobber(self) -> str:
        """Return what keeps the caller's vectors out of registers while sums are made, as a call does, where the
        function is in line."""
        if self.lanes not in _REGISTERS:
            return ""
        name, count = _REGISTERS[self.lanes]
        return f'  call void asm sideeffect "", "{",".join(f"~{{{name}{place}}}" for place in range(count))}"()'

    def _body(self, height: int) -> str:
        """Return the loops over k of a tile of `height` rows; names end in the height."""
        h, is_tallest = height, height == self.heights[-1]
        moving = [self._later(height)] if self.fetches_panels else []
        if is_tallest and self.fetches_rows:
            moving.append(self._next_rows(height))
        once, each = self._fetch_result(height) if is_tallest and self.fetches_results else ([], [])
        number = 1 + self.heights.index(height)
        rest = _Loop(f"{h}", f"rows.{h}", "%depth", f"store.{h}", number)
        loops, sums = self._loop(height, rest, moving), list[str]()
        if each:
            first = _Loop(f"{h}.first", f"rows.{h}", f"%line.steps.{h}", f"rest.{h}", 1 + len(self.heights))
            rest = replace(rest, before=f"rest.{h}", behind=first.name)
            loops = [
                *self._loop(height, first, moving, each),
                f"rest.{h}:",
                f"  %is.rest.{h} = icmp ult i64 %line.steps.{h}, %depth",
                f"  br i1 %is.rest.{h}, label %step.{h}, label %store.{h}",
                *self._loop(height, rest, moving),
            ]
            sums = [
                f"  %sums.{i}.{v}.{h} = phi {self._vector} [ %next.{i}.{v}.{first.name}, %rest.{h} ], "
                f"[ %next.{i}.{v}.{h}, %step.{h} ]"
                for i, v in product(range(height), range(self.vectors))
            ]
        return "\n".join([
            f"rows.{h}:", *self._rows(height, has_registers=self._has_registers(height, moving)),
            f"  %begin.{h} = mul nsw i64 %vector, %stride",
            *_addresses("panel", h, "%packed", [f"%begin.{h}", *["%stride"] * (self.vectors - 1)]),
            *(line for fetch in moving for line in fetch.first), *once,
            f"  br label %step.{first.name if each else h}", *loops,
            f"store.{h}:", *sums, *self._store(height, "sums" if each else "next"), "  br label %done",
        ])  # fmt: skip

    def _loop(self, height: int, loop: _Loop, moving: Sequence[_Moving], each: Sequence[str] = ()) -> list[str]:
        """Return a loop over steps of k, each of which fetches what the addresses `moving` have come to, and what
        `each` does."""
        t, before, behind = loop.name, loop.before, loop.behind
        carried = [("i64", "k", "k.next", "0"), ("i64", "at", "at.next", "0")]
        carried += [("ptr", f"{fetch.name}.at", f"{fetch.name}.next", fetch.start) for fetch in moving]
        carried += [
            (self._vector, f"sum.{i}.{v}", f"next.{i}.{v}", "zeroinitializer")
            for i, v in product(range(height), range(self.vectors))
        ]
        return [
            f"step.{t}:",
            *(
                f"  %{name}.{t} = phi {kind} [ {f'%{after}.{behind}' if behind else start}, %{before} ], "
                f"[ %{after}.{t}, %step.{t} ]"
                for kind, name, after, start in carried
            ),
            *each, *(line for fetch in moving for line in fetch.step(t)), *self._step(height, t),
            f"  %k.next.{t} = add nuw nsw i64 %k.{t}, 1",
            f"  %more.{t} = icmp ult i64 %k.next.{t}, {loop.end}",
            f"  br i1 %more.{t}, label %step.{t}, label %{loop.exit}, !llvm.loop !{loop.number}",
        ]  # fmt: skip

    def _has_registers(self, height: int, moving: Sequence[_Moving]) -> bool:
        """Return whether the addresses of rows and weights, those that are fetched from, both counters and the end of k
        have a register each, in loops that LLVM's optimiser unrolls."""
        return not self.is_finished and height + self.vectors + 2 * len(moving) + 3 <= _GENERAL_REGISTERS

    def _rows(self, height: int, *, has_registers: bool) -> list[str]:
        """Return the addresses of the rows: those that lower tiles lack are the last row.

        Where each has a register LLVM is not to know that they are equally far apart: it computed some of them anew in
        each step, and as these lay together, what was loaded from them: of four steps of six rows and two vectors 24
        pixels were loaded at once and stored on the stack, so that 6144x384x384 took 1.9 times as long on Zen 3.
        """
        h, lines = height, [f"  %last.{height} = sub nsw i64 %height, 1"]
        below = max((body for body in self.heights if body < height), default=0)
        found = "found" if has_registers else "row"
        for i in range(height):
            lines += [
                f"  %index.{i}.{h} = call i64 @llvm.smin.i64(i64 {i}, i64 {f'%last.{h}' if i > below else i})",
                f"  %apart.{i}.{h} = mul nsw i64 %index.{i}.{h}, %pitch",
                f"  %{found}.{i}.{h} = getelementptr float, ptr %rows, i64 %apart.{i}.{h}",
            ]
            if has_registers:
                lines.append(f'  %row.{i}.{h} = call ptr asm "", "=r,0"(ptr %{found}.{i}.{h})')
        return lines

    def _later(self, height: int) -> _Moving:
        """Return how a part of a later panel is fetched: where there is none, a line that L1 has."""
        h = height
        first = (
            f"  %later.panel.{h} = getelementptr float, ptr %panel.0.{h}, i64 %later",
            f"  %is.none.{h} = icmp eq i64 %later_bytes, 0",
            f"  %later.part.{h} = select i1 %is.none.{h}, ptr %sums, ptr %later.panel.{h}",
        )
        return _Moving("later", first, f"%later.part.{h}", "%later_bytes")

    def _next_rows(self, height: int) -> _Moving:
        """Return how the next tile's rows are fetched: each step of all panels fetches so many bytes, rounded up."""
        h = height
        first = (
            f"  %bytes.{h} = mul nsw i64 %height, 4",
            f"  %up.{h} = sub nsw i64 %panels, 1",
            f"  %all.{h} = add nsw i64 %bytes.{h}, %up.{h}",
            f"  %part.{h} = udiv i64 %all.{h}, %panels",
            f"  %tile.{h} = mul nsw i64 %height, %pitch",
            f"  %behind.{h} = getelementptr float, ptr %rows, i64 %tile.{h}",
            f"  %steps.{h} = mul nsw i64 %turn, %depth",
            f"  %skipped.{h} = mul nsw i64 %steps.{h}, %part.{h}",
            f"  %fetched.{h} = getelementptr i8, ptr %behind.{h}, i64 %skipped.{h}",
        )
        return _Moving("fetch", first, f"%fetched.{h}", f"%part.{h}")

    def _fetch_result(self, height: int) -> tuple[list[str], list[str]]:
        """Return what is to be done once to fetch the lines of the result, and what in each of the first steps of k:
        all is done at once where they are few, else these fetch one each. What their addresses take in all steps, where
        there was nothing left to fetch, took up to a tenth of the time. None is fetched behind the tile: what lies
        there another thread may read or write, which took 12 rows 1.35 times as long."""
        h, first = height, f"{height}.first"
        lines = -(-4 * self.lanes * self.vectors // CACHE_LINE)
        if height * lines <= LINES_AT_ONCE:
            return self._fetch_lines(height, lines), []
        once = [
            f"  %many.lines.{h} = mul nsw i64 %height, {self.vectors}",
            f"  %line.steps.{h} = call i64 @llvm.smin.i64(i64 %many.lines.{h}, i64 %depth)",
            f"  %channel.{h} = mul nsw i64 %vector, {self.lanes}",
            f"  %lines.{h} = getelementptr float, ptr %result, i64 %channel.{h}",
        ]
        return once, [
            f"  %line.row.{h} = udiv i64 %k.{first}, {self.vectors}",
            f"  %line.vector.{h} = urem i64 %k.{first}, {self.vectors}",
            f"  %line.apart.{h} = mul nsw i64 %line.row.{h}, %result_pitch",
            f"  %line.channel.{h} = mul nsw i64 %line.vector.{h}, {self.lanes}",
            f"  %line.place.{h} = add nsw i64 %line.apart.{h}, %line.channel.{h}",
            f"  %line.at.{h} = getelementptr float, ptr %lines.{h}, i64 %line.place.{h}",
            f"  call void @llvm.prefetch.p0(ptr %line.at.{h}, i32 {_WRITE}, i32 3, i32 1)",
        ]

    def _fetch_lines(self, height: int, lines: int) -> list[str]:
        """Return what fetches so many lines of each row of the result."""
        h, found = height, list[str]()
        found.append(f"  %channel.{h} = mul nsw i64 %vector, {self.lanes}")
        for i, line in product(range(height), range(lines)):
            found += [
                f"  %line.apart.{i}.{line}.{h} = mul nsw i64 %index.{i}.{h}, %result_pitch",
                f"  %line.place.{i}.{line}.{h} = add nsw i64 %line.apart.{i}.{line}.{h}, %channel.{h}",
                f"  %line.row.{i}.{line}.{h} = getelementptr float, ptr %result, i64 %line.place.{i}.{line}.{h}",
                f"  %line.at.{i}.{line}.{h} = getelementptr i8, ptr %line.row.{i}.{line}.{h}, i64 {CACHE_LINE * line}",
                f"  call void @llvm.prefetch.p0(ptr %line.at.{i}.{line}.{h}, i32 {_WRITE}, i32 3, i32 1)",
            ]
        return found

    def _step(self, height: int, t: str) -> list[str]:
        """Return one step of k of the loop `t`."""
        h, vector, lanes = height, self._vector, self.lanes
        lines = [f"  %at.next.{t} = add nuw nsw i64 %at.{t}, {lanes}"]
        for v in range(self.vectors):
            lines += [
                f"  %from.{v}.{t} = getelementptr float, ptr %panel.{v}.{h}, i64 %at.{t}",
                f"  %weight.{v}.{t} = load {vector}, ptr %from.{v}.{t}, align 4",
            ]
        for v in range(self.vectors) if vectors_are_lines(lanes) else ():
            lines += [
                f"  %ahead.{v}.{t} = getelementptr float, ptr %from.{v}.{t}, i64 {PREFETCH_STEPS * lanes}",
                f"  call void @llvm.prefetch.p0(ptr %ahead.{v}.{t}, i32 {_READ}, i32 3, i32 1)",
            ]
        for i in range(height):
            lines += [
                f"  %place.{i}.{t} = getelementptr float, ptr %row.{i}.{h}, i64 %k.{t}",
                f"  %scalar.{i}.{t} = load float, ptr %place.{i}.{t}, align 4",
                f"  %lane.{i}.{t} = insertelement {vector} poison, float %scalar.{i}.{t}, i64 0",
                f"  %all.{i}.{t} = shufflevector {vector} %lane.{i}.{t}, {vector} poison, "
                f"<{lanes} x i32> zeroinitializer",
            ]
            lines += [
                f"  %next.{i}.{v}.{t} = call {vector} @llvm.fmuladd.v{lanes}f32({vector} %all.{i}.{t}, "
                f"{vector} %weight.{v}.{t}, {vector} %sum.{i}.{v}.{t})"
                for v in range(self.vectors)
            ]
        return lines

    def _store(self, height: int, name: str) -> list[str]:
        """Return the stores of the sums of this name, row by row."""
        h, lines = height, list[str]()
        for i, v in product(range(height), range(self.vectors)):
            at = (i * self.vectors + v) * self.lanes
            lines += [
                f"  %to.{i}.{v}.{h} = getelementptr float, ptr %sums, i64 {at}",
                f"  store {self._vector} %{name}.{i}.{v}.{h}, ptr %to.{i}.{v}.{h}, align 4",
            ]
        return lines


def _addresses(name: str, height: int, base: str, apart: Sequence[str]) -> list[str]:
    """Return the addresses `name`.0, 1, ... of a body, each so many elements behind the one before."""
    lines = []
    for place, elements in enumerate(apart):
        lines.append(f"  %{name}.{place}.{height} = getelementptr float, ptr {base}, i64 {elements}")
        base = f"%{name}.{place}.{height}"
    return lines
