"""The product of two matrices of which only a call knows all sizes: a function in LLVM's own language.

    for panel of columns                            several vectors, the last of them masked where it is no whole one
      switch vectors                                a loop over rows for each number
        for tile of rows                            of heights that balance, up to the most that registers hold
          switch height                             a body for each
            acc[height, vectors] = 0                registers
            for k: acc += left[row, k] * right[k, vector]
            result[row, vector] = acc
    the same for half a vector of columns           where that is what is left

Both operands are read as they lie, and sums are stored where the caller says: most results lie there already. The
bodies are many, as none computes a row or a vector that is not there. The function is one for all calls, not in line:
TVM's passes see the calls alone, and LLVM makes its code once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import product

from tvm import tirx

from backends.cpu.costs import FMA_LATENCY, FMA_PER_CYCLE
from backends.cpu.machine import Machine
from backends.tensorir.emit import Expr, int64

_BUSY = FMA_LATENCY * FMA_PER_CYCLE
"""Sums that keep the multipliers busy: as many rows of one vector, or vectors of one row, have a tile at most."""

_MAIN = 4
"""Vectors of a panel at most, where there are several rows."""

_SPLIT = 16
"""Vectors of so many lanes are computed in two halves by some CPUs, as by Zen 4: half a vector takes half the time. A
product with 24 columns took 1.2 times as long as the static kernel with a masked vector, one with 8 columns 1.7 times.
Few rows wait for their sums, which those of one vector more hide: 2 rows of 40 columns took 1.5 times as long with half
a vector."""


@dataclass(frozen=True)
class ProductCall:
    """Sizes of a product.

    Attributes:
        rows, columns, depth: Of [rows, depth] and [depth, columns].
        left_pitch, right_pitch, pitch: Elements between rows of the operands and of the result.
    """

    rows: Expr
    columns: Expr
    depth: Expr
    left_pitch: Expr
    right_pitch: Expr
    pitch: Expr


@dataclass(frozen=True)
class _Panel:
    """Columns that are computed together.

    Attributes:
        name: How names of it end.
        kind: Of the panel's addresses and its mask.
        vectors: How many it has, of `lanes` each.
        tallest: The most rows of a tile of it.
    """

    name: str
    kind: str
    vectors: int
    lanes: int
    tallest: int

    @property
    def vector(self) -> str:
        """The type of a vector."""
        return f"<{self.lanes} x float>"

    def rows(self) -> Iterator[str]:
        """Yield the loop over tiles of rows."""
        n, tallest = self.name, self.tallest
        cases = " ".join(f"i64 {height}, label %tile.{height}.{n}" for height in range(1, tallest + 1))
        yield from (
            f"width.{n}:",
            f"  %padded.{n} = add nsw i64 %rows, {tallest - 1}",
            f"  %tiles.{n} = udiv i64 %padded.{n}, {tallest}",
            f"  %tiles.32.{n} = trunc i64 %tiles.{n} to i32",
            f"  %short.32.{n} = udiv i32 %rows.32, %tiles.32.{n}",
            f"  %short.{n} = zext i32 %short.32.{n} to i64",
            f"  %all.short.{n} = mul nsw i64 %short.{n}, %tiles.{n}",
            f"  %long.{n} = sub nsw i64 %rows, %all.short.{n}",
            f"  br label %choose.{n}",
            f"choose.{n}:",
            f"  %t.{n} = phi i64 [ 0, %width.{n} ], [ %t.next.{n}, %end.{n} ]",
            f"  %left.{n} = phi ptr [ %left, %width.{n} ], [ %left.next.{n}, %end.{n} ]",
            f"  %result.{n} = phi ptr [ %result.{self.kind}, %width.{n} ], [ %result.next.{n}, %end.{n} ]",
            f"  %is.long.{n} = icmp slt i64 %t.{n}, %long.{n}",
            f"  %one.{n} = zext i1 %is.long.{n} to i64",
            f"  %height.{n} = add nsw i64 %short.{n}, %one.{n}",
            f"  switch i64 %height.{n}, label %end.{n} [ {cases} ]",
        )
        for height in range(1, tallest + 1):
            yield from self._tile(height)
        yield from (
            f"end.{n}:",
            f"  %left.apart.{n} = mul nsw i64 %height.{n}, %left_pitch",
            f"  %left.next.{n} = getelementptr float, ptr %left.{n}, i64 %left.apart.{n}",
            f"  %apart.{n} = mul nsw i64 %height.{n}, %pitch",
            f"  %result.next.{n} = getelementptr float, ptr %result.{n}, i64 %apart.{n}",
            f"  %t.next.{n} = add nuw nsw i64 %t.{n}, 1",
            f"  %more.tiles.{n} = icmp slt i64 %t.next.{n}, %tiles.{n}",
            f"  br i1 %more.tiles.{n}, label %choose.{n}, label %end.{self.kind}",
        )

    def _tile(self, height: int) -> Iterator[str]:
        """Yield the sums of a tile, and their stores."""
        own, vector, lanes = f"{height}.{self.name}", self.vector, self.lanes
        sums = list(product(range(height), range(self.vectors)))
        yield f"tile.{own}:"
        yield from _addresses(f"row.{own}", f"%left.{self.name}", "%left_pitch", height)
        yield from (
            f"  br label %step.{own}",
            f"step.{own}:",
            f"  %k.{own} = phi i64 [ 0, %tile.{own} ], [ %k.next.{own}, %step.{own} ]",
            f"  %right.{own} = phi ptr [ %right.{self.kind}, %tile.{own} ], [ %right.next.{own}, %step.{own} ]",
        )
        for i, v in sums:
            sources = f"[ zeroinitializer, %tile.{own} ], [ %next.{i}.{v}.{own}, %step.{own} ]"
            yield f"  %sum.{i}.{v}.{own} = phi {vector} {sources}"
        for v in range(self.vectors):
            yield f"  %from.{v}.{own} = getelementptr float, ptr %right.{own}, i64 {v * lanes}"
            yield f"  %weight.{v}.{own} = {self._load(f'%from.{v}.{own}', v)}"
        for i in range(height):
            yield from (
                f"  %place.{i}.{own} = getelementptr float, ptr %row.{own}.{i}, i64 %k.{own}",
                f"  %scalar.{i}.{own} = load float, ptr %place.{i}.{own}, align 4",
                f"  %lane.{i}.{own} = insertelement {vector} poison, float %scalar.{i}.{own}, i64 0",
                f"  %all.{i}.{own} = shufflevector {vector} %lane.{i}.{own}, {vector} poison, "
                f"<{lanes} x i32> zeroinitializer",
            )
            for v in range(self.vectors):
                factors = f"{vector} %all.{i}.{own}, {vector} %weight.{v}.{own}, {vector} %sum.{i}.{v}.{own}"
                yield f"  %next.{i}.{v}.{own} = call {vector} @llvm.fmuladd.v{lanes}f32({factors})"
        yield from (
            f"  %right.next.{own} = getelementptr float, ptr %right.{own}, i64 %right_pitch",
            f"  %k.next.{own} = add nuw nsw i64 %k.{own}, 1",
            f"  %more.{own} = icmp ult i64 %k.next.{own}, %depth",
            f"  br i1 %more.{own}, label %step.{own}, label %store.{own}, !llvm.loop !1",
            f"store.{own}:",
        )
        yield from _addresses(f"to.{own}", f"%result.{self.name}", "%pitch", height)
        for i, v in sums:
            yield f"  %to.{i}.{v}.{own} = getelementptr float, ptr %to.{own}.{i}, i64 {v * lanes}"
            yield f"  {self._store(f'%next.{i}.{v}.{own}', f'%to.{i}.{v}.{own}', v)}"
        yield f"  br label %end.{self.name}"

    def _load(self, address: str, v: int) -> str:
        vector, lanes = self.vector, self.lanes
        if v < self.vectors - 1:
            return f"load {vector}, ptr {address}, align 4"
        read = f"ptr align 4 {address}, <{lanes} x i1> %mask.{self.kind}, {vector} zeroinitializer"
        return f"call {vector} @llvm.masked.load.v{lanes}f32.p0({read})"

    def _store(self, value: str, address: str, v: int) -> str:
        vector, lanes = self.vector, self.lanes
        if v < self.vectors - 1:
            return f"store {vector} {value}, ptr {address}, align 4"
        mask = f"<{lanes} x i1> %mask.{self.kind}"
        return f"call void @llvm.masked.store.v{lanes}f32.p0({vector} {value}, ptr align 4 {address}, {mask})"

    def begin(self, column: str, valid: str) -> Iterator[str]:
        """Yield the addresses from `column` on, and the mask of a last vector with so many `valid` elements."""
        kind, lanes = self.kind, self.lanes
        places = ", ".join(f"i32 {lane}" for lane in range(lanes))
        yield from (
            f"  %valid.32.{kind} = trunc i64 {valid} to i32",
            f"  %valid.lane.{kind} = insertelement <{lanes} x i32> poison, i32 %valid.32.{kind}, i64 0",
            f"  %valid.all.{kind} = shufflevector <{lanes} x i32> %valid.lane.{kind}, <{lanes} x i32> poison, "
            f"<{lanes} x i32> zeroinitializer",
            f"  %mask.{kind} = icmp ult <{lanes} x i32> <{places}>, %valid.all.{kind}",
            f"  %right.{kind} = getelementptr float, ptr %right, i64 {column}",
            f"  %result.{kind} = getelementptr float, ptr %result, i64 {column}",
        )


@dataclass(frozen=True)
class ProductFunction:
    """The function for vectors of `lanes`, of which there are so many `registers`."""

    lanes: int
    registers: int

    @staticmethod
    def of(machine: Machine) -> ProductFunction:
        """Return that of a machine."""
        return ProductFunction(machine.vector_lanes, machine.vector_registers)

    @property
    def name(self) -> str:
        """The function's."""
        return f"fusion_product_{self.lanes}_of_{self.registers}"

    @cached_property
    def heights(self) -> dict[int, int]:
        """The most rows of a tile, by its vectors."""
        held = {vectors: (self.registers - vectors - 1) // vectors for vectors in range(1, _BUSY + 1)}
        most = {vectors: min(rows, _BUSY if vectors <= self.main else 1) for vectors, rows in held.items()}
        return {vectors: rows for vectors, rows in most.items() if rows > 0}

    @cached_property
    def main(self) -> int:
        """Vectors of a panel where there are many rows: those that load least for each multiply-add."""

        def loads(vectors: int) -> float:
            rows = (self.registers - vectors - 1) // vectors
            return (rows + vectors) / (rows * vectors)

        return min(range(1, _MAIN + 1), key=loads)

    def call(self, at: ProductCall, left: Expr, right: Expr, result: Expr) -> tirx.Stmt:
        """Return the call with the loads of the first element of each operand and of where the first sum goes."""
        numbers = [int64(getattr(at, field.name)) for field in fields(at)]
        addresses = [tirx.address_of(load) for load in (left, right, result)]
        return tirx.Evaluate(tirx.call_extern("int32", self.name, *numbers, *addresses))

    @property
    def llvm_ir(self) -> str:
        """Its text."""
        lanes, half = self.lanes, self.lanes // 2 if self.lanes >= _SPLIT else 0
        panels = [_Panel(f"{v}", "panel", v, lanes, rows) for v, rows in self.heights.items()]
        rest = _Panel("half", "rest", 1, half, _BUSY)
        given = [f"i64 %{field.name}" for field in fields(ProductCall)]
        given += [f"ptr noalias %{name}" for name in ("left", "right", "result")]
        widths = " ".join(f"i64 {panel.vectors}, label %width.{panel.name}" for panel in panels)
        lines = [
            *(line for each in (lanes, half) if each for line in _declarations(each)),
            "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
            "declare i64 @llvm.smin.i64(i64, i64)",
            f"define i32 @{self.name}({', '.join(given)}) noinline {{",
            "entry:",
            "  %some.rows = icmp sgt i64 %rows, 0",
            "  %some.columns = icmp sgt i64 %columns, 0",
            "  %some = and i1 %some.rows, %some.columns",
            "  br i1 %some, label %sizes, label %done",
            "sizes:",
            "  %rows.32 = trunc i64 %rows to i32",
            f"  %whole = sdiv i64 %columns, {lanes}",
            f"  %whole.columns = mul nsw i64 %whole, {lanes}",
            "  %left.over = sub nsw i64 %columns, %whole.columns",
            f"  %most.of.one = icmp sgt i64 %left.over, {half}",
            f"  %few.rows = icmp slt i64 %rows, {FMA_LATENCY}",
            "  %behind.others = icmp sgt i64 %whole, 0",
            "  %some.over = icmp sgt i64 %left.over, 0",
            "  %waits = and i1 %few.rows, %behind.others",
            "  %with.others = and i1 %waits, %some.over",
            "  %masked = or i1 %most.of.one, %with.others",
            "  %one.masked = zext i1 %masked to i64",
            "  %vectors = add nsw i64 %whole, %one.masked",
            "  %is.one = icmp eq i64 %rows, 1",
            f"  %most = select i1 %is.one, i64 {max(self.heights)}, i64 {self.main}",
            "  %some.vectors = icmp sgt i64 %vectors, 0",
            "  %some.depth = icmp sgt i64 %depth, 0",
            "  %bytes = shl nuw nsw i64 %columns, 2",
            "  br i1 %some.depth, label %product, label %zero",
            "zero:",
            "  %zero.row = phi i64 [ 0, %sizes ], [ %zero.next, %zero ]",
            "  %zero.apart = mul nsw i64 %zero.row, %pitch",
            "  %zero.to = getelementptr float, ptr %result, i64 %zero.apart",
            "  call void @llvm.memset.p0.i64(ptr align 4 %zero.to, i8 0, i64 %bytes, i1 false)",
            "  %zero.next = add nuw nsw i64 %zero.row, 1",
            "  %more.zeros = icmp slt i64 %zero.next, %rows",
            "  br i1 %more.zeros, label %zero, label %done",
            "product:",
            "  br i1 %some.vectors, label %panel, label %end",
            "panel:",
            "  %first = phi i64 [ 0, %product ], [ %first.next, %end.panel ]",
            "  %others = sub nsw i64 %vectors, %first",
            "  %wide = call i64 @llvm.smin.i64(i64 %others, i64 %most)",
            "  %first.next = add nsw i64 %first, %wide",
            f"  %column = mul nsw i64 %first, {lanes}",
            f"  %end.column = mul nsw i64 %first.next, {lanes}",
            f"  %last.column = sub nsw i64 %end.column, {lanes}",
            "  %unread = sub nsw i64 %columns, %last.column",
            f"  %valid = call i64 @llvm.smin.i64(i64 %unread, i64 {lanes})",
            *panels[0].begin("%column", "%valid"),
            f"  switch i64 %wide, label %end.panel [ {widths} ]",
            *(line for panel in panels for line in panel.rows()),
            "end.panel:",
            "  %more.panels = icmp slt i64 %first.next, %vectors",
            "  br i1 %more.panels, label %panel, label %end",
            "end:",
        ]
        if half:
            lines += [
                "  %not.masked = xor i1 %masked, true",
                "  %some.rest = and i1 %some.over, %not.masked",
                "  br i1 %some.rest, label %rest, label %done",
                "rest:",
                *rest.begin("%whole.columns", "%left.over"),
                "  br label %width.half",
                *rest.rows(),
                "end.rest:",
            ]
        ending = ["  br label %done", "done:", "  ret i32 0", "}"]
        loops = ['!0 = !{!"llvm.loop.unroll.disable"}', "!1 = distinct !{!1, !0}"]
        return "\n".join([*lines, *ending, *loops, ""])


def _declarations(lanes: int) -> tuple[str, ...]:
    """Return what functions for vectors of `lanes` are called."""
    vector, mask = f"<{lanes} x float>", f"<{lanes} x i1>"
    return (
        f"declare {vector} @llvm.fmuladd.v{lanes}f32({vector}, {vector}, {vector})",
        f"declare {vector} @llvm.masked.load.v{lanes}f32.p0(ptr, {mask}, {vector})",
        f"declare void @llvm.masked.store.v{lanes}f32.p0({vector}, ptr, {mask})",
    )


def _addresses(name: str, base: str, pitch: str, many: int) -> Iterator[str]:
    """Yield the addresses `name`.0, 1, ... of rows from `base` on."""
    yield f"  %{name}.0 = getelementptr float, ptr {base}, i64 0"
    for place in range(1, many):
        yield f"  %{name}.{place} = getelementptr float, ptr %{name}.{place - 1}, i64 {pitch}"
