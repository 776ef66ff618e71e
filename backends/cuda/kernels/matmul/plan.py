"""How a product is divided among blocks, warps and stages: one point of the space, and what it takes of a device."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from backends.cuda.devices import DEVICES, REGISTERS, RESERVED_SHARED, WARP
from backends.cuda.kernels.launch import MOST_ELEMENTS
from backends.cuda.kernels.matmul.cores import Cores, FloatUnits, TensorCores
from backends.cuda.kernels.matmul.read import MatrixProduct, SumOfProducts
from backends.cuda.kernels.matmul.step_shares import StepShares
from backends.cuda.kernels.matmul.sums import SumsTile
from backends.cuda.kernels.matmul.tile import Tile
from backends.tensorir.stages import shape_of

_MANY_REGISTERS = 128
"""Of a thread by the estimate, from which on ptxas is told how many blocks an SM is to hold. Where it is not, it stops
at a number that lets one block more be there, and spills what is above it, though it has registers left: tiles of 64 x
64 of float32 need 117, and had 96 and 24 bytes spilled for a fifth block (12.9.86 and 13.0.88, sm_90). What takes fewer
spills in few kernels (`without_spills.py` mends them), and told takes a quarter more in the median (120 kernels)."""
_SHARED_BYTES = min(device.shared_bytes for device in DEVICES.values())
"""Of an SM of any device of the table: the loops of one architecture run on later ones."""
_OTHER_REGISTERS = 32
"""Of a thread, for addresses, beside a fifth more than sums and fragments take: `test_toolkit.py` holds it to what
`ptxas -v` counts."""


@dataclass(frozen=True)
class TileShape:
    """The sizes of tiles.

    Attributes:
        rows: Of a block's tile; so for `columns` and `depth`.
        warp_rows: Of a warp's tile; so for `warp_columns`.
        stages: Tiles in shared memory, of which all but one are on their way.
        split: Blocks that share the depth of one tile, each with sums of its own.
        stream_blocks: Blocks that share the steps of all tiles (stream-K, Osama et al. 2023); 0 where each has one
            tile, or a split of it.
    """

    rows: int
    columns: int
    depth: int
    warp_rows: int
    warp_columns: int
    stages: int
    split: int = 1
    stream_blocks: int = 0

    @property
    def threads(self) -> int:
        """Of a block."""
        return self.rows // self.warp_rows * (self.columns // self.warp_columns) * WARP


@dataclass(frozen=True)
class Plan:
    """A product at one point.

    Attributes:
        cores: What multiplies.
    """

    product: SumOfProducts
    cores: Cores
    point: TileShape

    @property
    def left(self) -> Tile:
        """Of the left operand; so for `right`."""
        return Tile(self.product.left, self.point.rows, self.point.depth, self.cores.swizzle(self.product.left))

    @property
    def right(self) -> Tile:
        return Tile(self.product.right, self.point.columns, self.point.depth, self.cores.swizzle(self.product.right))

    @property
    def stage_bytes(self) -> int:
        """Size of what one stage brings."""
        return self.left.bytes + self.right.bytes

    @property
    def sums(self) -> SumsTile:
        """What the block makes."""
        extents = (self.product.batches, self.product.rows, self.product.columns)
        return SumsTile(self.point.rows, self.point.columns, self.cores.padding, extents)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block: the stages, and after them, in their place, the sums."""
        return max(self.stage_bytes * self.point.stages, self.sums.bytes)

    @property
    def registers(self) -> int:
        """Of a thread, about as many as ptxas takes, up to the 255 that there are."""
        point = self.point
        fragments = self.cores.fragment_registers(point.warp_rows, point.warp_columns)
        numbers = point.warp_rows * point.warp_columns // WARP + fragments
        return min(255, numbers * 6 // 5 + _OTHER_REGISTERS)

    @property
    def blocks_of_sm(self) -> int | None:
        """Blocks at a time that ptxas is to leave registers for: as many as an SM has registers for, with a quarter to
        spare for what the estimate does not know, and shared memory: stream-K of small tiles spilled where more were
        asked for. None where it is not to be told."""
        if not self.point.stream_blocks and self.registers < _MANY_REGISTERS:
            return None
        by_registers = REGISTERS // (self.registers * 5 // 4 * self.point.threads)
        return max(1, min(by_registers, _SHARED_BYTES // (self.shared_bytes + RESERVED_SHARED)))

    @property
    def tiles(self) -> tuple[int, int, int]:
        """Tiles of rows, columns and depth."""
        sizes = ((self.product.rows, self.point.rows), (self.product.columns, self.point.columns))
        rows, columns = (-(-extent // size) for extent, size in sizes)
        return rows, columns, -(-self.product.depth // self.point.depth)

    @property
    def tiles_of_split(self) -> int:
        """Tiles of depth that one block adds up."""
        return -(-self.tiles[2] // self.point.split)

    @property
    def stream(self) -> StepShares:
        """How blocks share the steps of all tiles."""
        return StepShares(self.product.batches * prod(self.tiles), self.point.stream_blocks, self.tiles[2])

    @property
    def steps_of_block(self) -> int:
        """Tiles of depth that one block multiplies."""
        return self.stream.most if self.point.stream_blocks else self.tiles_of_split

    @property
    def tiles_of_block(self) -> int:
        """Tiles of which one block has steps, at most."""
        return -(-self.stream.most // self.stream.of_tile) + 1 if self.point.stream_blocks else 1

    @property
    def blocks(self) -> int:
        """Of the grid."""
        return self.point.stream_blocks or self.product.batches * prod(self.tiles[:2]) * self.point.split

    def __str__(self) -> str:
        point = self.point
        split = f", {point.split} blocks share a depth" if point.split > 1 else ""
        split += f", {point.stream_blocks} blocks share all steps" if point.stream_blocks else ""
        tile = f"tile {point.rows} x {point.columns} x {point.depth}"
        return f"{tile}, warp {point.warp_rows} x {point.warp_columns}, {point.stages} stages{split}"

    def why_not(self) -> str:
        """Return why the point does not suit the product; "" where it does, and then its kernel is right."""
        point, (rows, columns) = self.point, self.cores.units(self.product.left, self.product.right)
        if point.warp_rows % rows or point.warp_columns % columns or point.depth % self.cores.step:
            return f"a warp's tile is no multiple of {rows} x {columns}, or the depth none of {self.cores.step}"
        if point.rows % point.warp_rows or point.columns % point.warp_columns or point.threads > 1024:
            return "the warps do not divide the block, or are more than 32"
        tiles = (self.left, self.right)
        if any(tile.line_bytes < 16 or tile.line_bytes & (tile.line_bytes - 1) for tile in tiles):
            return "a line is no power of two of 16 bytes"
        if any(tile.line % tile.operand.many for tile in tiles):
            return "a copy is longer than a line"
        if point.split > 1 and self.tiles_of_split * (point.split - 1) >= self.tiles[2]:
            return "a block has nothing to add up"
        if point.split * prod(shape_of(self.product.sums)) > MOST_ELEMENTS:
            return "there are more sums than an int32 counts"
        if point.stream_blocks and (point.split > 1 or not 1 < point.stream_blocks <= self.stream.steps):
            return "the steps are split twice, or fewer than the blocks that share them"
        if point.stream_blocks and self.stream.are_tiles:
            return "no block begins inside of a tile"
        if max(self.stream.steps, 2 * point.stream_blocks * point.rows * point.columns) > MOST_ELEMENTS:
            return "there are more steps or sums than an int32 counts"
        return ""


def cores_of(product: MatrixProduct, *, tfloat32: bool = False) -> Cores:
    """Return what multiplies the numbers of a product.

    Args:
        tfloat32: Whether float32 may be rounded to 10 bits of mantissa, for tensor cores.
    """
    if product.dtype != "float32":
        return TensorCores(product.dtype)
    return TensorCores("tfloat32") if tfloat32 else FloatUnits()
