"""What multiplies the tiles of a warp: tensor cores, or the float32 units."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from tvm import tirx
from tvm.ir import Var
from tvm.tirx import ForKind

from backends.cuda.codegen.device_functions import address, call_device, registers
from backends.cuda.devices import CudaDevice
from backends.cuda.kernels.matmul.operand import MatrixOperand
from backends.cuda.kernels.matmul.tile import Tile
from backends.cuda.kernels.registers import register
from backends.tensorir.emit import Nest, int64

Expr = Any
Store = Callable[[Expr, Expr, tuple[Var, Expr], int], None]
"""Stores so many sums, as `registers` gives them, at a row and a column of the warp's tile."""


@dataclass(frozen=True)
class Side:
    """One operand of a warp.

    Attributes:
        shared: The block's shared memory, of bytes.
        begin: Where in it the tile begins.
        outer: Where in the tile the warp's part begins, a multiple of 16.
        many: Extent of that part.
    """

    tile: Tile
    shared: Var
    begin: Expr
    outer: Expr
    many: int

    def at(self, outer: Expr, low: Expr, depth: Expr) -> Expr:
        """Return the address of an element by its position in the tile, `low` being the line's rest of 8."""
        line, element = (outer, depth) if self.tile.operand.by_depth else (depth, outer)
        return address(self.shared, self.begin + self.tile.at(line, low, element * self.tile.operand.item_bytes))


class Cores(Protocol):
    """What a warp multiplies with; `rows` and `columns` are those of its tile.

    Attributes:
        step: Depth of one step; the tile's is a multiple.
        padding: Floats behind each row of sums in shared memory, so that lanes store different rows to different banks.
    """

    @property
    def padding(self) -> int: ...

    @property
    def step(self) -> int: ...

    def gflops(self, device: CudaDevice) -> float:
        """Return how fast a device multiplies so, in 1e9 operations per second."""

    def units(self, left: MatrixOperand, right: MatrixOperand) -> tuple[int, int]:
        """Return of what the rows and the columns of a warp's tile are multiples."""

    def swizzle(self, operand: MatrixOperand) -> int:
        """Return by how many vectors neighbouring lines of the operand's tile differ."""

    def fragment_registers(self, rows: int, columns: int) -> int:
        """Return how many registers of a thread hold what one step multiplies."""

    def multiply(self, nest: Nest, sums: Var, left: Side, right: Side, lane: Expr, *, depth: Expr) -> None:
        """Add one step at `depth` of the tiles to the thread's sums."""

    def store(self, sums: Var, left: Side, right: Side, lane: Expr, put: Store) -> None:
        """Hand each of the thread's sums to `put`."""


@dataclass(frozen=True)
class TensorCores:
    """`mma` on 16 x 8 sums of a warp: PTX ISA, "Matrix fragments for mma.m16n8k16" and ".m16n8k8".

    Lane l has rows l / 4 and l / 4 + 8 of the left operand, column l / 4 of the right one, and of the sums the columns
    l % 4 * 2 and the next in both rows.

    Attributes:
        dtype: "float16" or "bfloat16", 16 of which are a step, or "tfloat32", 8.
    """

    dtype: str
    padding: int = 8

    @property
    def is_tfloat32(self) -> bool:
        return self.dtype == "tfloat32"

    @property
    def step(self) -> int:
        return 8 if self.is_tfloat32 else 16

    def gflops(self, device: CudaDevice) -> float:
        return device.gflops(self.dtype) * device.mma_share

    def units(self, left: MatrixOperand, right: MatrixOperand) -> tuple[int, int]:
        return 16, 16

    def swizzle(self, operand: MatrixOperand) -> int:
        return 2 if self._is_by_words(operand) else 1

    def fragment_registers(self, rows: int, columns: int) -> int:
        return rows // 16 * 4 + columns // 16 * 4

    def multiply(self, nest: Nest, sums: Var, left: Side, right: Side, lane: Expr, *, depth: Expr) -> None:
        rows = self.fragments(nest, "rows", left, lane, depth=depth, is_left=True)
        columns = self.fragments(nest, "columns", right, lane, depth=depth, is_left=False)
        for row in range(left.many // 16):
            self.add_row(nest, (sums, row * (right.many // 8) * 4), (rows, row * 4), columns, right.many)

    def add_row(self, nest: Nest, sums: tuple[Var, int], row: tuple[Var, int], columns: Var, many: int) -> None:
        """Add the products of 16 rows and `many` columns, each from a register on, to sums from one on."""
        for column in range(many // 8):
            numbers = (*registers(sums[0], sums[1] + column * 4), *registers(*row), *registers(columns, column * 2))
            call_device(nest, f"multiply_{self.dtype}", *numbers)

    def store(self, sums: Var, left: Side, right: Side, lane: Expr, put: Store) -> None:
        columns = right.many // 8
        for at in range(left.many // 16 * columns):
            for half in range(2):
                row = tirx.floordiv(lane, int64(4)) + (at // columns * 16 + half * 8)
                column = tirx.floormod(lane, int64(4)) * 2 + at % columns * 8
                put(row, column, registers(sums, at * 4 + half * 2), 2)

    def fragments(
        self, nest: Nest, name: str, side: Side, lane: Expr, *, depth: Expr, is_left: bool, is_paired: bool = False
    ) -> Var:
        """Return four registers for each 16 of `outer`: of its halves, at the lower and the upper half of depth.

        Args:
            is_left: Whether the second register is of the upper half of `outer`, as `mma` takes the left operand;
                otherwise of depth.
            is_paired: Whether the lower half of depth are its even numbers, and the upper half its odd ones; of
                tfloat32 only.
        """
        kept = register(nest, name, side.many // 16 * 4, "uint32")
        for block in range(side.many // 16):
            if is_paired or self._is_by_words(side.tile.operand):
                for slot in range(4):
                    upper = (slot % 2, slot // 2) if is_left else (slot // 2, slot % 2)
                    own = tirx.floormod(lane, int64(4))
                    at_depth = own * 2 + upper[1] if is_paired else own + upper[1] * 4
                    outer = side.outer + block * 16 + upper[0] * 8 + tirx.floordiv(lane, int64(4))
                    low = outer if side.tile.operand.by_depth else at_depth
                    word = side.at(outer, low, depth + at_depth)
                    call_device(nest, "take_word", *registers(kept, block * 4 + slot), word)
            else:
                at = self._row_at(side, lane, block, depth=depth, is_left=is_left)
                function = "load_matrices" if side.tile.operand.by_depth else "load_transposed"
                call_device(nest, function, *registers(kept, block * 4), at)
        if self.is_tfloat32:
            call_device(nest, f"round_tfloat32<{side.many // 16 * 4}>", kept)
        return kept

    def _is_by_words(self, operand: MatrixOperand) -> bool:
        """Return whether lanes read words one by one: `ldmatrix` transposes only what has 2 bytes."""
        return self.is_tfloat32 and not operand.by_depth

    def _row_at(self, side: Side, lane: Expr, block: int, *, depth: Expr, is_left: bool) -> Expr:
        """Return where the row is that the lane names to `ldmatrix`, of 16 of `outer` times a step."""
        row = tirx.floormod(lane, int64(8))
        first = tirx.floormod(tirx.floordiv(lane, int64(8)), int64(2))
        second = tirx.floordiv(lane, int64(16))
        outer_half, depth_half = (first, second) if is_left else (second, first)
        outer, at_depth = side.outer + block * 16 + outer_half * 8, depth + depth_half * (self.step // 2)
        if side.tile.operand.by_depth:
            return side.at(outer + row, row, at_depth)
        return side.at(outer, row, at_depth + row)


@dataclass(frozen=True)
class FloatUnits:
    """Multiply-adds of float32: 4 x 8 lanes have each the products of some rows and some columns.

    Lane l has rows l / 8 + 4 i and columns l % 8 + 8 j, or runs of four of them where four lie next to each other.
    """

    step: int = 4
    padding: int = 4

    def gflops(self, device: CudaDevice) -> float:
        return device.float32_gflops

    def units(self, left: MatrixOperand, right: MatrixOperand) -> tuple[int, int]:
        return 4 * _run_of(left), 8 * _run_of(right)

    def swizzle(self, operand: MatrixOperand) -> int:
        return 1

    def fragment_registers(self, rows: int, columns: int) -> int:
        return (rows // 4 + columns // 8) * self.step

    def multiply(self, nest: Nest, sums: Var, left: Side, right: Side, lane: Expr, *, depth: Expr) -> None:
        row, column = tirx.floordiv(lane, int64(8)), tirx.floormod(lane, int64(8))
        rows = self._fragments(nest, "rows", left, row, lanes=4, depth=depth)
        columns = self._fragments(nest, "columns", right, column, lanes=8, depth=depth)
        sizes = f"{left.many // 4}, {right.many // 8}, {self.step}"
        call_device(nest, f"multiply_floats<{sizes}>", sums, rows, columns)

    def store(self, sums: Var, left: Side, right: Side, lane: Expr, put: Store) -> None:
        row_run, column_run = _run_of(left.tile.operand), _run_of(right.tile.operand)
        row, column = tirx.floordiv(lane, int64(8)), tirx.floormod(lane, int64(8))
        columns = right.many // 8
        for i in range(left.many // 4):
            for j in range(0, columns, column_run):
                at_row = row * row_run + (i // row_run * 4 * row_run + i % row_run)
                at_column = column * column_run + j * 8
                put(at_row, at_column, registers(sums, i * columns + j), column_run)

    def _fragments(self, nest: Nest, name: str, side: Side, lane: Expr, *, lanes: int, depth: Expr) -> Var:
        """Return the step's numbers of each row or column that the lane has, depth by depth."""
        many = side.many // lanes
        kept = register(nest, name, many * self.step, "float32")
        if side.tile.operand.by_depth:
            for i in range(many):
                outer = side.outer + lane + i * lanes
                call_device(nest, "take_floats<4>", *registers(kept, i * 4), side.at(outer, outer, int64(depth)))
            return kept
        run = register(nest, "run", 4, "float32")
        for i in range(many // 4):
            outer = side.outer + (lane + i * lanes) * 4
            for k in range(self.step):
                call_device(
                    nest, "take_floats<4>", *registers(run, 0), side.at(outer, int64(depth + k), int64(depth + k))
                )
                with nest.run("element", 4, ForKind.UNROLLED) as element:
                    taken = tirx.BufferLoad(run, [element])
                    nest.store(kept, [(i * 4 + element) * self.step + k], taken)
        return kept


def _run_of(operand: MatrixOperand) -> int:
    """Return how many neighbours of `outer` a lane takes at once."""
    return 1 if operand.by_depth else 4
