"""How a transposed convolution is cut: one contraction for each pair of strips of its result."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

from backends.cpu.kernels.conv2d_transpose.phases import Strip, tap_step
from backends.cpu.kernels.shared.blocking import blocking_space
from backends.cpu.kernels.shared.contraction import Blocking
from backends.cpu.kernels.shared.extents import Extents
from backends.cpu.kernels.shared.split import Split
from backends.cpu.kernels.shared.window import Window
from backends.cpu.machine import Machine
from backends.tensorir.extents import difference, most, typical
from backends.tensorir.roles import Roles
from backends.tensorir.space import Space
from backends.tensorir.stages import dims_of, shape_of


def conv2d_transpose_space(roles: Roles, machine: Machine, threads: int) -> Space[Blocking]:
    """Return the blockings of the pair of strips with the most products; the others take the same."""
    pairs = [pair.extents for pair in pairs_of(roles, machine.vector_lanes)]
    return blocking_space(max(pairs, key=lambda extents: extents.steps * extents.groups), machine, threads)


def pairs_of(roles: Roles, lanes: int) -> list[Pair]:
    """Return the contractions that make the result."""
    window = Window.from_annotation(roles.attrs["window"])
    strips = (Strip.all_of(window, axis, roles.shape[1 + axis]) for axis in (0, 1))
    return [Pair(roles, rows, columns, lanes) for rows, columns in product(*strips)]


@dataclass(frozen=True)
class Pair:
    """The contraction of two strips; its groups are their pairs of phases, times the groups of the channels."""

    roles: Roles
    rows: Strip
    columns: Strip
    lanes: int

    @property
    def extents(self) -> Extents:
        """Sizes of the contraction."""
        batch, height, width, channels = map(typical, dims_of(self.roles.operands[0]))
        phases = len(self.rows.numbers) * len(self.columns.numbers)
        return Extents(
            outer=batch, groups=phases * self.groups, height=typical(self.rows.count),
            width=typical(self.columns.count),
            channels=self.roles.shape[3] // self.groups, taps=(self.rows.taps, self.columns.taps),
            depth=channels // self.groups, lanes=self.lanes, input_bytes=4 * height * width * channels,
        )  # fmt: skip

    @property
    def groups(self) -> int:
        """Groups of the channels."""
        return shape_of(self.roles.operands[1])[2]

    @property
    def window(self) -> Window:
        """That of the operator."""
        return Window.from_annotation(self.roles.attrs["window"])

    @property
    def border(self) -> Window:
        """What one position of each strip reads, all phases together, as the window of a convolution of stride 1."""
        _, height, width, _ = dims_of(self.roles.operands[0])
        lowest = min(self.rows.start), min(self.columns.start)
        highest = [max(s.start) + (s.taps - 1) * tap_step(self.window, axis) for axis, s in enumerate(self.strips)]
        bottom = difference(highest[0] + self.rows.count, height)
        right = difference(highest[1] + self.columns.count, width)
        padding = (-lowest[0], max(0, -lowest[1]), most(0, bottom), most(0, right))
        return Window((highest[0] - lowest[0] + 1, 1), (1, 1), padding, (1, 1))

    @property
    def strips(self) -> tuple[Strip, Strip]:
        """Both."""
        return self.rows, self.columns

    @property
    def crosses_border(self) -> bool:
        """Whether a tap may meet what lies outside of the image."""
        return any(not isinstance(extent, int) or extent > 0 for extent in self.border.padding)

    def within(self, point: Blocking) -> Blocking:
        """Return `point` with no more chunks of rows than there are tiles of them."""
        tiles = Split.of(self.rows.count, point.tile.height).count
        return replace(point, row_chunks=min(point.row_chunks, tiles))
