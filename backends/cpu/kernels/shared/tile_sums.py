"""The sums of a tile of rows, whose height only a call knows, in several panels of weights: a function in LLVM's own
language.

    switch height                                   bodies for some; a lower tile computes its last row several times
      for panel
        acc[height, vectors] = 0                    registers
        for k: acc += rows[i, k] * weights[vector, k]; fetch a part of the next tile's rows
        sums[panel] = acc

TVM's passes see the call alone, and products of the same rows share it. The heights of MiniLM's queries, keys and
values, written in TensorIR for each of the three, made LLVM take four times as long as for the static kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import product

from tvm import tirx

from backends.cpu.costs import PREFETCH_STEPS
from backends.tensorir.emit import Expr, int64


@dataclass(frozen=True)
class TileCall:
    """What a call is about.

    Attributes:
        height: Rows of the tile.
        product: The place of its product among those that share the function.
        first, panels: The first panel, and how many there are.
        before, all_panels: How many of the tile's were computed before, and how many there are in all.
        last: The vector of weights with which the last panel of the product begins, which overlaps the one before.
        pitch: Elements between rows.
        stride: Elements between vectors of weights.
        depth: Steps of k.
        room: Elements between the sums of panels.
    """

    height: Expr
    product: Expr
    first: Expr
    panels: Expr
    before: Expr
    all_panels: Expr
    last: Expr
    pitch: Expr
    stride: Expr
    depth: Expr
    room: Expr


@dataclass(frozen=True)
class TileSums:
    """A function for tiles of `vectors` vectors of `lanes` and up to the last of `heights` rows.

    Attributes:
        heights: Those that have bodies, in order.
        products: How many share it, each with weights of its own.
        fetches_rows: Whether it fetches the rows behind the tile, which lie behind one another, all panels a part.
    """

    heights: tuple[int, ...]
    vectors: int
    lanes: int
    products: int
    fetches_rows: bool = False

    @property
    def name(self) -> str:
        """The function's."""
        heights, kind = "_".join(map(str, self.heights)), "_fetching" * self.fetches_rows
        return f"fusion_tile_sums{kind}_{self.products}_{self.vectors}v{self.lanes}_{heights}"

    def call(self, at: TileCall, rows: tirx.BufferLoad, sums: tirx.BufferLoad, weights: Sequence[Expr]) -> tirx.Stmt:
        """Return the call with the addresses of the first row, the first sum and each product's weights."""
        numbers = [int64(getattr(at, field.name)) for field in fields(at)]
        addresses = [tirx.address_of(load) for load in (rows, sums, *weights)]
        return tirx.Evaluate(tirx.call_extern("int32", self.name, *numbers, *addresses))

    @property
    def llvm_ir(self) -> str:
        """Its text."""
        vector, lanes = self._vector, self.lanes
        numbers = ", ".join(f"i64 %{field.name}" for field in fields(TileCall))
        weights = ", ".join(f"ptr %weights.{place}" for place in range(self.products))
        served = {h: next(body for body in self.heights if body >= h) for h in range(1, self.heights[-1] + 1)}
        cases = " ".join(f"i64 {height}, label %rows.{body}" for height, body in served.items())
        bodies = "\n".join(self._body(height) for height in self.heights)
        loops = "\n".join(f"!{place} = distinct !{{!{place}, !0}}" for place, _ in enumerate(self.heights, 1))
        return f"""
declare {vector} @llvm.fmuladd.v{lanes}f32({vector}, {vector}, {vector})
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
declare i64 @llvm.smin.i64(i64, i64)

define i32 @{self.name}({numbers}, ptr %rows, ptr %sums, {weights}) {{
{self._select()}
  switch i64 %height, label %done [ {cases} ]
{bodies}
done:
  ret i32 0
}}

!0 = !{{!"llvm.loop.unroll.disable"}}
{loops}
"""

    @property
    def _vector(self) -> str:
        return f"<{self.lanes} x float>"

    def _select(self) -> str:
        """Return the weights of the product as `%packed`."""
        lines, found = [], "%weights.0"
        for place in range(1, self.products):
            lines.append(f"  %is.{place} = icmp eq i64 %product, {place}")
            lines.append(f"  %of.{place} = select i1 %is.{place}, ptr %weights.{place}, ptr {found}")
            found = f"%of.{place}"
        return "\n".join([*lines, f"  %packed = getelementptr i8, ptr {found}, i64 0"])

    def _body(self, height: int) -> str:
        """Return the loops over panels and k of a tile of `height` rows; names end in the height."""
        h, vector = height, self._vector
        places = list(product(range(height), range(self.vectors)))
        panel = _addresses("panel", h, "%packed", [f"%begin.{h}", *["%stride"] * (self.vectors - 1)])
        start = [
            f"  %sum.{i}.{v}.{h} = phi {vector} [ zeroinitializer, %panel.{h} ], [ %next.{i}.{v}.{h}, %step.{h} ]"
            for i, v in places
        ]
        return "\n".join([
            f"rows.{h}:", *self._rows(height), f"  br label %panel.{h}",
            f"panel.{h}:",
            f"  %p.{h} = phi i64 [ 0, %rows.{h} ], [ %p.next.{h}, %store.{h} ]",
            f"  %number.{h} = add nsw i64 %first, %p.{h}",
            f"  %even.{h} = mul nsw i64 %number.{h}, {self.vectors}",
            f"  %vector.{h} = call i64 @llvm.smin.i64(i64 %even.{h}, i64 %last)",
            f"  %begin.{h} = mul nsw i64 %vector.{h}, %stride",
            *panel, *self._fetched_panel(height), f"  br label %step.{h}",
            f"step.{h}:",
            f"  %k.{h} = phi i64 [ 0, %panel.{h} ], [ %k.next.{h}, %step.{h} ]",
            *start, *self._step(height),
            f"  %k.next.{h} = add nuw nsw i64 %k.{h}, 1",
            f"  %more.{h} = icmp ult i64 %k.next.{h}, %depth",
            f"  br i1 %more.{h}, label %step.{h}, label %store.{h}, !llvm.loop !{1 + self.heights.index(height)}",
            f"store.{h}:", *self._store(height),
            f"  %p.next.{h} = add nuw nsw i64 %p.{h}, 1",
            f"  %again.{h} = icmp slt i64 %p.next.{h}, %panels",
            f"  br i1 %again.{h}, label %panel.{h}, label %done",
        ])  # fmt: skip

    def _rows(self, height: int) -> list[str]:
        """Return the addresses of the rows: those that lower tiles lack are the last row."""
        h, lines = height, [f"  %last.{height} = sub nsw i64 %height, 1"]
        below = max((body for body in self.heights if body < height), default=0)
        for i in range(height):
            lines += [
                f"  %index.{i}.{h} = call i64 @llvm.smin.i64(i64 {i}, i64 {f'%last.{h}' if i > below else i})",
                f"  %apart.{i}.{h} = mul nsw i64 %index.{i}.{h}, %pitch",
                f"  %row.{i}.{h} = getelementptr float, ptr %rows, i64 %apart.{i}.{h}",
            ]
        if self.fetches_rows:
            # Each step of k of each panel fetches so many bytes, rounded up.
            lines += [
                f"  %bytes.{h} = mul nsw i64 %height, 4",
                f"  %up.{h} = sub nsw i64 %all_panels, 1",
                f"  %all.{h} = add nsw i64 %bytes.{h}, %up.{h}",
                f"  %part.{h} = udiv i64 %all.{h}, %all_panels",
                f"  %tile.{h} = mul nsw i64 %height, %pitch",
                f"  %behind.{h} = getelementptr float, ptr %rows, i64 %tile.{h}",
            ]
        return lines

    def _fetched_panel(self, height: int) -> list[str]:
        """Return where what a panel fetches begins."""
        h = height
        return [
            f"  %turn.{h} = add nsw i64 %before, %p.{h}",
            f"  %steps.{h} = mul nsw i64 %turn.{h}, %depth",
            f"  %skipped.{h} = mul nsw i64 %steps.{h}, %part.{h}",
            f"  %fetched.{h} = getelementptr i8, ptr %behind.{h}, i64 %skipped.{h}",
        ] * self.fetches_rows

    def _step(self, height: int) -> list[str]:
        """Return one step of k."""
        h, vector, lanes = height, self._vector, self.lanes
        lines = [f"  %at.{h} = mul nuw nsw i64 %k.{h}, {lanes}"]
        if self.fetches_rows:
            lines += [
                f"  %offset.part.{h} = mul nuw nsw i64 %k.{h}, %part.{h}",
                f"  %fetch.{h} = getelementptr i8, ptr %fetched.{h}, i64 %offset.part.{h}",
                f"  call void @llvm.prefetch.p0(ptr %fetch.{h}, i32 0, i32 3, i32 1)",
            ]
        for v in range(self.vectors):
            lines += [
                f"  %from.{v}.{h} = getelementptr float, ptr %panel.{v}.{h}, i64 %at.{h}",
                f"  %weight.{v}.{h} = load {vector}, ptr %from.{v}.{h}, align 4",
                f"  %ahead.{v}.{h} = getelementptr float, ptr %from.{v}.{h}, i64 {PREFETCH_STEPS * lanes}",
                f"  call void @llvm.prefetch.p0(ptr %ahead.{v}.{h}, i32 0, i32 3, i32 1)",
            ]
        for i in range(height):
            lines += [
                f"  %place.{i}.{h} = getelementptr float, ptr %row.{i}.{h}, i64 %k.{h}",
                f"  %scalar.{i}.{h} = load float, ptr %place.{i}.{h}, align 4",
                f"  %lane.{i}.{h} = insertelement {vector} poison, float %scalar.{i}.{h}, i64 0",
                f"  %all.{i}.{h} = shufflevector {vector} %lane.{i}.{h}, {vector} poison, "
                f"<{lanes} x i32> zeroinitializer",
            ]
            lines += [
                f"  %next.{i}.{v}.{h} = call {vector} @llvm.fmuladd.v{lanes}f32({vector} %all.{i}.{h}, "
                f"{vector} %weight.{v}.{h}, {vector} %sum.{i}.{v}.{h})"
                for v in range(self.vectors)
            ]
        return lines

    def _store(self, height: int) -> list[str]:
        """Return the stores of the sums of a panel, row by row."""
        h = height
        lines = [
            f"  %offset.{h} = mul nsw i64 %p.{h}, %room",
            f"  %to.{h} = getelementptr float, ptr %sums, i64 %offset.{h}",
        ]
        for i, v in product(range(height), range(self.vectors)):
            at = (i * self.vectors + v) * self.lanes
            lines += [
                f"  %to.{i}.{v}.{h} = getelementptr float, ptr %to.{h}, i64 {at}",
                f"  store {self._vector} %next.{i}.{v}.{h}, ptr %to.{i}.{v}.{h}, align 4",
            ]
        return lines


def _addresses(name: str, height: int, base: str, apart: Sequence[str]) -> list[str]:
    """Return the addresses `name`.0, 1, ... of a body, each so many elements behind the one before."""
    lines = []
    for place, elements in enumerate(apart):
        lines.append(f"  %{name}.{place}.{height} = getelementptr float, ptr {base}, i64 {elements}")
        base = f"%{name}.{place}.{height}"
    return lines
