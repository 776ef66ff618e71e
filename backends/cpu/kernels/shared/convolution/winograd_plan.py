"""How a 3x3 convolution is cut for Winograd's method, and which transform it takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log2

from backends.cpu.costs import (
    KEPT_L2_SHARE,
    L2_BYTES_PER_CYCLE,
    LOADS_PER_CYCLE,
    MEMORY_BYTES_PER_CYCLE,
    REGION_CYCLES,
    TASK_CYCLES,
)
from backends.cpu.kernels.shared.blocking import chunk_counts
from backends.cpu.kernels.shared.convolution.winograd_transform import F2, F4, KERNEL, Transform
from backends.cpu.kernels.shared.register_tile import RegisterTile, choose, total_cycles
from backends.cpu.kernels.shared.split import Split
from backends.cpu.kernels.shared.window import Window
from backends.cpu.machine import Machine

TRANSFORMS = (F2, F4)
_MAX_BLOCK = 64
"""Tiles of a block beyond this gain nothing: the weights are read once for all of them."""


@dataclass(frozen=True)
class WinogradShape:
    """Sizes of a convolution that Winograd's method can do: 3x3, stride 1, one group.

    Attributes:
        batch, height, width, depth: Of the input; `depth` counts its channels.
        out_height, out_width, channels: Of the result.
        top, left: Rows and columns of zeros before the image.
        lanes: float32 lanes of a vector.
        is_known: Whether compiling knows the weights, and transforms them.
    """

    batch: int
    height: int
    width: int
    depth: int
    out_height: int
    out_width: int
    channels: int
    top: int
    left: int
    lanes: int
    is_known: bool = True

    @property
    def vectors(self) -> int:
        """Vectors of output channels."""
        return -(-self.channels // self.lanes)


@dataclass(frozen=True)
class WinogradPlan:
    """How one convolution is computed.

    Attributes:
        transform: F2 or F4.
        tile: The register tile of the products; its rows are tiles of the image.
        blocks: Cuts of an image's tiles.
        chunks: Cuts of the panels; each pair with a block is a parallel task.
        cycles: Estimate for the slowest thread.
    """

    transform: Transform
    tile: RegisterTile
    blocks: int
    chunks: int
    cycles: float

    def axes(self) -> dict[str, int]:
        cuts = {"blocks": self.blocks, "chunks": self.chunks}
        return {"transform": self.transform.tile, **self.tile.axes("tile"), **cuts}

    def __str__(self) -> str:
        return f"F({self.transform.tile}x{self.transform.tile}) {self.tile} tiles/{self.blocks} panels/{self.chunks}"


def winograd_shape(
    window: Window, image: Sequence[int], groups: int, channels: int, lanes: int
) -> WinogradShape | None:
    """Return the sizes of a convolution for Winograd's method; None where it is none for it."""
    if window.kernel != (KERNEL, KERNEL) or not window.strides == window.dilation == (1, 1) or groups != 1:
        return None
    (batch, height, width, depth), (top, left, *_) = image, window.padding
    out_height, out_width = window.output(height, width)
    return WinogradShape(
        batch=batch, height=height, width=width, depth=depth, out_height=out_height, out_width=out_width,
        channels=channels, top=top, left=left, lanes=lanes,
    )  # fmt: skip


def plan_winograd(shape: WinogradShape, machine: Machine, threads: int) -> WinogradPlan | None:
    """Return the plan that is estimated to take the fewest cycles; None where none fits the caches."""
    return min(winograd_plans(shape, machine, threads), key=lambda plan: plan.cycles, default=None)


def winograd_plans(shape: WinogradShape, machine: Machine, threads: int) -> Iterator[WinogradPlan]:
    """Yield the points of the space."""
    for transform in TRANSFORMS:
        yield from _plans(shape, transform, machine, threads)


def _plans(shape: WinogradShape, transform: Transform, machine: Machine, threads: int) -> Iterator[WinogradPlan]:
    """Yield every size of block whose data fits half of L2, with every cut of the panels."""
    tiles = -(-shape.out_height // transform.tile) * -(-shape.out_width // transform.tile)
    products = transform.size**2
    before = 0.0 if shape.is_known else _weight_cycles(shape, transform, threads)
    for blocks in sorted({-(-tiles // size) for size in range(1, min(tiles, _MAX_BLOCK) + 1)}):
        rows = Split(tiles, blocks).longest
        tile = choose(rows, 1, shape.vectors, shape.depth, machine.vector_registers)
        held = 4 * products * rows * (shape.depth + (1 + tile.vectors) * shape.lanes)
        if held > machine.l2_bytes // 2:
            continue
        panels = -(-shape.vectors // tile.vectors)
        inputs, made = 4 * products * rows * shape.depth, 4 * products * rows * tile.vectors * shape.lanes
        for chunks in chunk_counts(panels, threads):
            longest = Split(panels, chunks).longest
            vectors = min(shape.vectors, longest * tile.vectors)
            cycles = (
                products * total_cycles(tile, rows, 1, vectors, shape.depth)
                + rows * (shape.depth / shape.lanes + vectors) * _transform_cycles(transform)
                + _l2_cycles(inputs, made, longest, machine)
                + TASK_CYCLES
            )
            tasks = shape.batch * blocks * chunks
            rounds, weights = -(-tasks // threads), 4 * products * shape.depth * vectors * shape.lanes
            cycles = rounds * cycles + _reading_cycles(weights, chunks, rounds, inputs + made, machine)
            region = REGION_CYCLES if tasks > 1 else 0
            yield WinogradPlan(transform, tile, blocks, chunks, cycles + region + before)


def _l2_cycles(inputs: int, made: int, panels: int, machine: Machine) -> float:
    """Return the cycles in which a task moves what L1 does not hold: transformed tiles of so many bytes, written once
    and read for each panel, and the products of a panel, written and read."""
    moved = inputs * (1 + panels) if inputs + made > machine.l1_bytes else 0
    moved += 2 * made * panels if made > machine.l1_bytes else 0
    return moved / L2_BYTES_PER_CYCLE


def _reading_cycles(weights: int, chunks: int, rounds: int, held: int, machine: Machine) -> float:
    """Return the cycles in which a thread reads the weights of so many tasks: those of a chunk the first time from
    memory, then from L2, where that keeps all chunks and what a task holds besides."""
    first = min(chunks, rounds)
    is_kept = first * weights + held <= KEPT_L2_SHARE * machine.l2_bytes
    again = L2_BYTES_PER_CYCLE if is_kept else MEMORY_BYTES_PER_CYCLE
    return weights * (first / MEMORY_BYTES_PER_CYCLE + (rounds - first) / again)


def winograd_features(
    shape: WinogradShape, machine: Machine, threads: int, plan: WinogradPlan
) -> Mapping[str, float]:
    """Return numbers of a plan that a cost model learns from: sizes as logarithms, footprints as those of their share
    of a cache."""
    products, transform = plan.transform.size**2, plan.transform
    tiles = -(-shape.out_height // transform.tile) * -(-shape.out_width // transform.tile)
    rows, panels = Split(tiles, plan.blocks).longest, -(-shape.vectors // plan.tile.vectors)
    vectors = min(shape.vectors, Split(panels, plan.chunks).longest * plan.tile.vectors)
    tasks = shape.batch * plan.blocks * plan.chunks
    share = -(-tasks // threads) * rows / tiles * vectors / shape.vectors
    covered = tiles * transform.tile**2 / (shape.out_height * shape.out_width)
    transformed = 4 * products * shape.vectors * shape.lanes * shape.depth
    return {
        "transform": transform.tile, "covered": covered, "height": log2(rows), "vectors": log2(shape.vectors),
        "steps": log2(shape.depth), "tile rows": plan.tile.rows, "sums": plan.tile.rows * plan.tile.vectors,
        "tasks": log2(tasks), "rounds": -(-tasks // threads), "imbalance": share * threads / shape.batch,
        "inputs of L2": log2(4 * products * rows * shape.depth / machine.l2_bytes),
        "weights of L2": log2(transformed / machine.l2_bytes),
        "weights of L3": log2(transformed / max(machine.l3_bytes, 1)),
        "cut vector": shape.channels % shape.lanes / shape.lanes,
    }  # fmt: skip


def _weight_cycles(shape: WinogradShape, transform: Transform, threads: int) -> float:
    """Return the cycles in which the run transforms all weights, which go to memory."""
    each = _transform_cycles(transform) + 4 * transform.size**2 * shape.lanes / MEMORY_BYTES_PER_CYCLE
    return -(-shape.vectors * shape.depth // threads) * each + REGION_CYCLES


def _transform_cycles(transform: Transform) -> float:
    """Return the cycles to transform one vector of a tile: a load and a store of each value, and in each of two passes
    about 2 operations a value."""
    values = transform.size**2
    return values / LOADS_PER_CYCLE + values + 2 * 2 * values / LOADS_PER_CYCLE
