"""Copies of weights that lie as they come, a block of panels after the other, in which a panel lies together.

    for k
      for panel of the block
        copy[panel, k, :] = weights[k, panel]       zeros behind the last channel

Rows of a matrix that are a multiple of 4 KiB apart share the sets of L1 and have a page each: a panel of them stays in
no cache, no hardware fetches ahead in it, and vectors of rows that end inside a cache line lie in two. BLAS libraries
copy for that reason (Goto & van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm import tirx
from tvm.ir import Var

from backends.tensorir.emit import Expr, Nest, guard, int64, pieces, ramp, splat

LoadWeights = Callable[[Expr, Expr, int], Expr]
"""(channel, step of k, count) -> the load of `count` neighbouring channels."""


@dataclass(frozen=True)
class PackedPanels:
    """Memory for a block of panels.

    Attributes:
        memory: Of a core.
        channels: All that there are; the last panel may be narrower.
        width: Channels of a panel.
        depth: Steps of k.
        lanes: Of a vector.
    """

    memory: Var
    channels: int
    width: int
    depth: int
    lanes: int

    @staticmethod
    def allocate(nest: Nest, panels: int, *, channels: int, width: int, depth: int, lanes: int) -> PackedPanels:
        """Return memory for so many panels, which lives to the end of the enclosing loop body."""
        memory = nest.allocate("panels", (panels * depth * width,))
        return PackedPanels(memory, channels, width, depth, lanes)

    def fill(self, nest: Nest, load: LoadWeights, first: Expr, many: Expr) -> None:
        """Emit the copy of `many` panels from `first` on."""
        last = (self.channels - 1) // self.width
        rest = self.channels - last * self.width
        with nest.loop("k", self.depth) as k:
            if last or rest == self.width:
                with nest.loop("panel", many if rest == self.width else tirx.min(many, last - first)) as panel:
                    self._copy(nest, load, first, k, panel=first + panel, channels=self.width)
            if rest < self.width:
                with guard(nest, first + many > last if last else None):
                    self._copy(nest, load, first, k, panel=int64(last), channels=rest)

    def _copy(self, nest: Nest, load: LoadWeights, first: Expr, k: Expr, *, panel: Expr, channels: int) -> None:
        """Emit the copy of the `channels` of a panel at a step of k, the last vector of which is filled with zeros."""
        start, end = panel * self.width, -(-channels // self.lanes) * self.lanes
        for at, count in pieces(channels, self.lanes):
            nest.store(self.memory, [ramp(self._place(first, panel, k) + at, count)], load(start + at, k, count))
        for at, count in pieces(end - channels, self.lanes):
            zeros = splat(tirx.const(0, "float32"), count)
            nest.store(self.memory, [ramp(self._place(first, panel, k) + (channels + at), count)], zeros)

    def load(self, first: Expr, channel: Expr, step: Expr, count: int) -> Expr:
        """Return the load of `count` channels of one step, of a block that begins with panel `first`."""
        panel, inside = tirx.floordiv(channel, self.width), tirx.floormod(channel, self.width)
        return tirx.BufferLoad(self.memory, [ramp(self._place(first, panel, step) + inside, count)])

    def _place(self, first: Expr, panel: Expr, step: Expr) -> Expr:
        return ((panel - first) * self.depth + step) * self.width
