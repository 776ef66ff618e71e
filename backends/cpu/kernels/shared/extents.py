"""How large a contraction is, apart from what its tensors are called: all that its blocking depends on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from backends.cpu import byte_dots
from backends.cpu.costs import CACHE_LINE, FETCHED_SHARE, FMA_PER_CYCLE, MEMORY_BYTES_PER_CYCLE
from backends.cpu.machine import Machine
from backends.tensorir.emit import pieces


def vectors_are_lines(lanes: int) -> bool:
    """Return whether each vector of float32 weights is a line or more, and worth a fetch of its own: of smaller ones
    each line would be fetched several times, by steps that have fewer cycles to spare."""
    return 4 * lanes >= CACHE_LINE


@dataclass(frozen=True)
class Extents:
    """Sizes of a matmul or a convolution.

    Attributes:
        outer: Extent of the loop over independent images (batch).
        groups: Convolution groups; each has its own channels on both sides.
        height, width: Rows of one image.
        channels: Output channels per group.
        taps: Extents of the window loops.
        depth: Contiguous elements of k per tap.
        lanes: float32 lanes of a vector.
        input_bytes: Bytes of one image of the input.
        dtype: Of the rows.
        step: Elements of k that one instruction multiplies; a step's weights fill a vector register.
        per_cycle: Such instructions a cycle.
        row_cycles: What making a row of the input takes, where the kernel makes it, in cycles of one core.
        products: Products of these sizes side by side, of which a task has the same channels.
        whole_rows: Whether a task needs all channels of its rows.
        weight_pitch: Bytes between rows of float32 weights that lie as they come, k by channels; 0 where panels of them
            lie together since the kernel began, None where they do since it was compiled.
        row_pitch: Bytes between neighbouring rows of the input; 0 where nothing is known of that.
        in_tiles: Whether the machine may multiply in tiles: bytes, bfloat16, or terms of that in place of float32.
    """

    outer: int
    groups: int
    height: int
    width: int
    channels: int
    taps: tuple[int, ...]
    depth: int
    lanes: int
    input_bytes: int
    dtype: str = "float32"
    step: int = 1
    per_cycle: float = FMA_PER_CYCLE
    row_cycles: float = 0.0
    products: int = 1
    whole_rows: bool = False
    weight_pitch: int | None = None
    row_pitch: int = 0
    in_tiles: bool = False

    @property
    def vectors(self) -> int:
        """Weight vectors per group."""
        return -(-self.channels // self.lanes)

    @property
    def multiplied_vectors(self) -> int:
        """Vectors of a step of k that are multiplied: weights that are read where they lie end in parts of a vector,
        each of which takes as long as a whole one. 7381x96 by 96x19 took 2.65 times as long as with copies on two vCPUs
        of Zen 3, where 19 channels are two vectors of 8 and parts of 2 and 1."""
        return len(pieces(self.channels, self.lanes)) if self.weight_pitch else self.vectors

    @property
    def steps(self) -> int:
        """Steps of k over all taps."""
        return -(-self.depth // self.step) * prod(self.taps)

    @property
    def waits_for_rows(self) -> bool:
        """Whether a core that has its rows from beyond L2 waits for them for a part of its time worth mending: of few
        channels, which make little of each row. Rows of matmuls only, which lie behind one another."""
        if self.taps or self.width > 1 or self.groups > 1:
            return False
        computed = self.height * self.vectors * self.steps / self.per_cycle
        return self.input_bytes / MEMORY_BYTES_PER_CYCLE > FETCHED_SHARE * computed


def may_be_in_tiles(extents: Extents, machine: Machine) -> Extents:
    """Return the sizes of a product that a kernel of its own computes, by weights whose panels lie together since it
    was compiled, with whether the machine may multiply it in tiles."""
    has_form = {"float32": machine.tiles, "bfloat16": machine.tiles, byte_dots.LEFT: machine.byte_tiles}
    return replace(extents, in_tiles=has_form.get(extents.dtype, False) and extents.groups == 1)
