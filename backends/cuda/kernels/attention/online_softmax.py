"""What a lane has of the scores, the weights and the sums of its rows (Milakov & Gimelshein, "Online normalizer
calculation for softmax", 2018)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import Var
from tvm.tirx import ForKind

from backends.cuda.kernels.attention.plan import FlashPlan
from backends.cuda.kernels.attention.products import size
from backends.cuda.kernels.registers import register
from backends.cuda.kernels.warps import shuffled
from backends.tensorir.emit import Nest
from backends.tensorir.softmax_rows import LEAST, bounded_sum

Expr = Any


@dataclass(frozen=True)
class OnlineSoftmax:
    """Adds what turns scores into weights, tile by tile, in the registers of a lane.

    Attributes:
        scores: Of the warp's rows and a tile of keys, those of the lane.
        sums: Of the warp's rows and the channels, so too.
        top, total: Maximum and sum of each of the lane's rows; `scale` multiplies what was summed before a tile.
    """

    plan: FlashPlan
    nest: Nest
    lane: Var
    scores: Var
    sums: Var
    top: Var
    total: Var
    scale: Var

    @classmethod
    def of(cls, plan: FlashPlan, nest: Nest, lane: Var) -> OnlineSoftmax:
        """Return it, its registers declared."""
        sizes = {"scores": size(plan.point.keys), "sums": size(plan.channels)}
        sizes |= dict.fromkeys(("top", "total", "scale"), plan.products.rows if plan.region.is_softmax else 1)
        made = {name: register(nest, name, many, "float32") for name, many in sizes.items()}
        return cls(plan=plan, nest=nest, lane=lane, **made)

    def begin(self) -> None:
        """Add the values that registers begin with."""
        self._fill(self.sums, size(self.plan.channels), 0.0)
        if self.plan.region.is_softmax:
            self._fill(self.top, self.plan.products.rows, LEAST)
            self._fill(self.total, self.plan.products.rows, 0.0)

    def clear_scores(self) -> None:
        """Add the begin of a tile's scores."""
        self._fill(self.scores, size(self.plan.point.keys), 0.0)

    def weigh(self) -> None:
        """Add what turns scores into weights, and what that changes of the sums before."""
        nest, rows = self.nest, self.plan.products.rows
        new_top = register(nest, "new_top", rows, "float32")
        with self._rows() as row:
            nest.store(new_top, [row], tirx.BufferLoad(self.top, [row]))
        with self.each_score() as (slot, row, *_):
            largest = tirx.max(tirx.BufferLoad(new_top, [row]), tirx.BufferLoad(self.scores, [slot]))
            nest.store(new_top, [row], largest)
        with self._rows() as row:
            top, new = tirx.BufferLoad(self.top, [row]), tirx.BufferLoad(new_top, [row])
            for distance in self.plan.products.distances:
                nest.store(new_top, [row], tirx.max(new, shuffled(new, distance)))
            nest.store(self.scale, [row], tirx.exp(top - new))
            nest.store(self.top, [row], new)
            scaled = tirx.BufferLoad(self.total, [row]) * tirx.BufferLoad(self.scale, [row])
            nest.store(self.total, [row], scaled)
        with self.each_score() as (slot, row, *_):
            score = tirx.BufferLoad(self.scores, [slot])
            nest.store(self.scores, [slot], tirx.exp(score - tirx.BufferLoad(self.top, [row])))
            nest.store(self.total, [row], tirx.BufferLoad(self.total, [row]) + score)
        with self._each_sum() as (slot, row):
            nest.store(self.sums, [slot], tirx.BufferLoad(self.sums, [slot]) * tirx.BufferLoad(self.scale, [row]))

    def divide(self) -> None:
        """Add the division of sums by the totals."""
        nest, plan = self.nest, self.plan
        with self._rows() as row:
            total = tirx.BufferLoad(self.total, [row])
            for distance in plan.products.distances:
                nest.store(self.total, [row], total + shuffled(total, distance))
        with self._each_sum() as (slot, row):
            total = tirx.BufferLoad(self.total, [row])
            whole = bounded_sum(total) if plan.region.is_bounded else total
            nest.store(self.sums, [slot], tirx.BufferLoad(self.sums, [slot]) / whole)

    def _fill(self, buffer: Var, many: int, value: float) -> None:
        with self.nest.run("slot", many, ForKind.UNROLLED) as slot:
            self.nest.store(buffer, [slot], tirx.const(value, "float32"))

    @contextmanager
    def _rows(self) -> Iterator[Var]:
        """Open a loop over the lane's rows."""
        with self.nest.run("row", self.plan.products.rows, ForKind.UNROLLED) as row:
            yield row

    @contextmanager
    def each_score(self) -> Iterator[tuple[Var, Expr, Expr, Expr]]:
        """Open a loop over the lane's scores: which, in which of its rows, and in which row and column of the warp."""
        keys = self.plan.point.keys
        with self.nest.run("slot", size(keys), ForKind.UNROLLED) as slot:
            yield slot, *self.plan.products.place(slot, self.lane, keys)

    @contextmanager
    def _each_sum(self) -> Iterator[tuple[Var, Expr]]:
        """Open a loop over the lane's sums: which, and in which of its rows."""
        channels = self.plan.channels
        with self.nest.run("slot", size(channels), ForKind.UNROLLED) as slot:
            yield slot, self.plan.products.place(slot, self.lane, channels)[0]
