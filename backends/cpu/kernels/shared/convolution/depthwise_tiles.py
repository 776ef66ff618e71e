"""How a depthwise convolution of N x H x W x C images is cut."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import log2, prod

from backends.cpu.costs import TASK_CYCLES
from backends.cpu.kernels.shared.blocking import chunk_counts
from backends.cpu.kernels.shared.extents import vectors_are_lines
from backends.cpu.kernels.shared.register_tile import RegisterTile
from backends.cpu.kernels.shared.split import Split
from backends.cpu.kernels.shared.window import Window
from backends.cpu.machine import Machine
from backends.tensorir.space import Space

_MAX_WIDTH = 14
_PAIR_WIDTH = 8
"""Pixels of a row in registers where images come from beyond L2."""


@dataclass(frozen=True)
class DepthwiseTile:
    """How the loops are cut.

    Attributes:
        tile: Pixels of a row times vectors of channels in registers.
        chunks: Cuts of the channels; each with an output row is a parallel task.
        cycles: Estimate for the slowest thread.
    """

    tile: RegisterTile
    chunks: int
    cycles: float

    def axes(self) -> dict[str, int]:
        return {**self.tile.axes("tile"), "chunks": self.chunks}

    def __str__(self) -> str:
        return f"{self.tile} channels/{self.chunks}"


def depthwise_tiles(
    shape: tuple[int, ...], window: Window, taps: int, machine: Machine, threads: int
) -> Space[DepthwiseTile]:
    """Return every width of a register tile, with one vector of channels or two, and cuts of the channels, for a result
    of `shape` whose every element is the sum of `taps` products under a window."""
    batch, height, width, channels = shape

    def point(vectors: int, most: int, chunks: int) -> DepthwiseTile:
        tile = RegisterTile(1, Split.of(width, most).longest, vectors)
        blocks = -(-channels // (vectors * machine.vector_lanes))
        sizes = Split.of(width, most).sizes()
        row = sum(RegisterTile(1, size, vectors).cycles_in_l1(taps) * many for size, many in sizes)
        rounds = -(-batch * height * chunks // threads)
        cycles = rounds * (Split(blocks, chunks).longest * row + TASK_CYCLES)
        return DepthwiseTile(tile, chunks, cycles)

    def every() -> Iterator[DepthwiseTile]:
        for vectors in (1, 2) if channels >= 2 * machine.vector_lanes else (1,):
            blocks = -(-channels // (vectors * machine.vector_lanes))
            widths = range(1, min(width, _most_sums(window, machine) // vectors) + 1)
            lengths = dict.fromkeys(Split.of(width, most).longest for most in widths)
            for length, chunks in product(lengths, chunk_counts(blocks, threads)):
                yield point(vectors, length, chunks)

    # Two vectors where one pixel row alone would leave the FMA units waiting.
    vectors = 2 if channels >= 2 * machine.vector_lanes and width <= 8 else 1
    most = widest_tile(window, machine, vectors)
    if _fetches_pairs(shape, window, taps, machine, threads):
        vectors, most = 2, _PAIR_WIDTH
    blocks = -(-channels // (vectors * machine.vector_lanes))

    def features(chosen: DepthwiseTile) -> Mapping[str, float]:
        size = chosen.tile.vectors * machine.vector_lanes
        blocks, tasks = -(-channels // size), batch * height * chosen.chunks
        widths = Split.of(width, chosen.tile.width)
        share = -(-tasks // threads) * Split(blocks, chosen.chunks).longest / blocks / (batch * height)
        return {
            "width": log2(width), "height": log2(batch * height), "taps": taps, "blocks": log2(blocks),
            "filled": channels / (blocks * size), "last column": widths.short / widths.longest,
            "sums": chosen.tile.width * chosen.tile.vectors, "tasks": log2(tasks), "imbalance": share * threads,
            "a task of L1": log2(4 * channels / chosen.chunks * width * taps**0.5 / machine.l1_bytes),
            "result of L2": log2(4 * batch * height * width * channels / machine.l2_bytes),
        }  # fmt: skip

    default = point(vectors, most, 1 if batch * height >= 8 * threads else min(blocks, threads))
    return Space(default, every, features)


def _fetches_pairs(shape: tuple[int, ...], window: Window, taps: int, machine: Machine, threads: int) -> bool:
    """Return whether two lines of a pixel are best read one behind the other: of images that come from beyond L2, as
    what fetches ahead there does so for neighbouring lines, not for one line of each pixel.

    56x56x128 take 0.82 of the time that single lines take, 96x96x64 with 7x7 taps of stride 2 0.61, 56x56x32, which L2
    has, 1.03 (two threads of a Granite Rapids). Products of groups, which take longer than their images, and vectors of
    half a line were not measured.
    """
    *_, channels = shape
    moved = 4 * prod(shape) * (1 + prod(window.strides))
    far = moved / threads > machine.l2_bytes / 2
    lines = vectors_are_lines(machine.vector_lanes) and channels % machine.vector_lanes == 0
    wide = channels >= 2 * machine.vector_lanes and widest_tile(window, machine, 2) >= _PAIR_WIDTH
    return far and lines and wide and taps == prod(window.kernel)


def widest_tile(window: Window, machine: Machine, vectors: int) -> int:
    """Return how many pixels of so many vectors a register tile has at most by default."""
    return min(_most_sums(window, machine) // vectors, _MAX_WIDTH)


def window_taps(window: Window, machine: Machine) -> int:
    """Return how many weights of a row of the window are in registers at a time: all, but for a wide one, which would
    leave none for sums.

    With 16 registers, 48x48x232 under 5x5 took 289 us with 12 sums, 268 with the 10 that are left (Zen 3).
    """
    return min(window.kernel[1], machine.vector_registers // 2 - 1)


def _most_sums(window: Window, machine: Machine) -> int:
    """Return how many registers there are beside those of the weights and a pixel."""
    return machine.vector_registers - window_taps(window, machine) - 1
