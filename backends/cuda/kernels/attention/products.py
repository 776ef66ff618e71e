"""The two products of a warp's 16 queries: which scores and sums a lane has, and what it multiplies them with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tvm import tirx
from tvm.ir import Var

from backends.cuda.codegen.device_functions import address, barrier, call_device, registers
from backends.cuda.kernels.matmul.cores import FloatUnits, Side, TensorCores
from backends.cuda.kernels.registers import register
from backends.tensorir.emit import Nest, int64

Expr = Any
WARP_ROWS = 16
"""Queries of a warp: those of one `mma`."""


class WarpProducts(Protocol):
    """How a warp makes the scores of a tile of keys, and of them the sums.

    Attributes:
        rows: Of a lane.
        distances: By which the numbers of lanes differ that share a row.
    """

    @property
    def rows(self) -> int: ...

    @property
    def distances(self) -> tuple[int, ...]: ...

    def held_registers(self, depth: int) -> int:
        """Return how many registers of a lane keep what `hold` keeps of queries of so many numbers."""

    def weight_registers(self, keys: int, channels: int) -> int:
        """Return how many registers of a lane the second product takes, beside scores and sums."""

    def place(self, slot: Expr, lane: Expr, keys: int) -> tuple[Expr, Expr, Expr]:
        """Return of a lane's score which of its rows it is in, and row and column of the warp's tile."""

    def hold(self, nest: Nest, queries: Side, lane: Expr, depth: int) -> Sequence[Var]:
        """Return the queries in registers, as far as they stay there."""

    def score(self, nest: Nest, scores: Var, held: Sequence[Var], queries: Side, keys: Side, lane: Expr) -> None:
        """Add the products of queries and keys to the scores."""

    def sum(self, nest: Nest, sums: Var, scores: Var, weights: Side, values: Side, lane: Expr) -> None:
        """Add the products of weights, which are in the registers of the scores, and values to the sums."""


def size(columns: int) -> int:
    """Return how many of a warp's scores or sums, of so many columns, a lane has."""
    return WARP_ROWS * columns // 32


@dataclass(frozen=True)
class TensorProducts:
    """On tensor cores: what `mma` makes of two times 8 keys lies as it takes 16 of its left operand.

    Of tfloat32 it takes 8, of which a lane has the first four and the last four one by one, where its scores are two
    neighbours. Sums do not tell in which order keys are added up: the first four are the even ones, also of the values.
    """

    cores: TensorCores
    rows: int = 2
    distances: tuple[int, ...] = (1, 2)

    def held_registers(self, depth: int) -> int:
        return -(-depth // self.cores.step) * 4

    def weight_registers(self, keys: int, channels: int) -> int:
        return keys // self.cores.step * 4

    def place(self, slot: Expr, lane: Expr, keys: int) -> tuple[Expr, Expr, Expr]:
        half = tirx.floordiv(tirx.floormod(slot, int64(4)), int64(2))
        column = tirx.floordiv(slot, int64(4)) * 8 + tirx.floormod(lane, int64(4)) * 2 + tirx.floormod(slot, int64(2))
        return half, tirx.floordiv(lane, int64(4)) + half * 8, column

    def hold(self, nest: Nest, queries: Side, lane: Expr, depth: int) -> Sequence[Var]:
        steps = range(0, depth, self.cores.step)
        return [self.cores.fragments(nest, "rows", queries, lane, depth=at, is_left=True) for at in steps]

    def score(self, nest: Nest, scores: Var, held: Sequence[Var], queries: Side, keys: Side, lane: Expr) -> None:
        for number, rows in enumerate(held):
            depth = number * self.cores.step
            columns = self.cores.fragments(nest, "columns", keys, lane, depth=depth, is_left=False)
            self.cores.add_row(nest, (scores, 0), (rows, 0), columns, keys.many)

    def sum(self, nest: Nest, sums: Var, scores: Var, weights: Side, values: Side, lane: Expr) -> None:
        keys, cores = weights.tile.depth, self.cores
        packed = register(nest, "weights", self.weight_registers(keys, 0), "uint32")
        made = 4 if cores.is_tfloat32 else 1
        for at in range(0, self.weight_registers(keys, 0), made):
            first = at if cores.is_tfloat32 else at * 2
            call_device(nest, f"pack_{cores.dtype}", *registers(packed, at), *registers(scores, first))
        for step in range(keys // cores.step):
            columns = cores.fragments(
                nest, "columns", values, lane, depth=step * cores.step, is_left=False, is_paired=cores.is_tfloat32
            )
            cores.add_row(nest, (sums, 0), (packed, step * 4), columns, values.many)


@dataclass(frozen=True)
class FloatProducts:
    """In float32: 4 x 8 lanes have every fourth row, and every eighth column or runs of four; weights go through shared
    memory, for a lane needs all of a row."""

    cores: FloatUnits
    column_run: int
    rows: int = WARP_ROWS // 4
    distances: tuple[int, ...] = (1, 2, 4)

    def held_registers(self, depth: int) -> int:
        return 0

    def weight_registers(self, keys: int, channels: int) -> int:
        return self.cores.fragment_registers(WARP_ROWS, max(keys, channels))

    def place(self, slot: Expr, lane: Expr, keys: int) -> tuple[Expr, Expr, Expr]:
        run, row, at = self.column_run, tirx.floordiv(slot, int64(keys // 8)), tirx.floormod(slot, int64(keys // 8))
        column = tirx.floormod(lane, int64(8)) * run + tirx.floordiv(at, int64(run)) * (8 * run)
        return row, tirx.floordiv(lane, int64(8)) + row * 4, column + tirx.floormod(at, int64(run))

    def hold(self, nest: Nest, queries: Side, lane: Expr, depth: int) -> Sequence[Var]:
        return ()

    def score(self, nest: Nest, scores: Var, held: Sequence[Var], queries: Side, keys: Side, lane: Expr) -> None:
        self._multiply(nest, scores, (queries, keys), lane, -(-queries.tile.operand.depths // self.cores.step))

    def sum(self, nest: Nest, sums: Var, scores: Var, weights: Side, values: Side, lane: Expr) -> None:
        keys = weights.tile.depth
        for slot in range(0, size(keys), self.column_run):
            _, row, column = self.place(int64(slot), lane, keys)
            line = weights.outer + row
            at = weights.begin + weights.tile.at(line, line, column * 4)
            call_device(
                nest, f"put_floats<{self.column_run}>", address(weights.shared, at), *registers(scores, slot)
            )
        barrier(nest)
        self._multiply(nest, sums, (weights, values), lane, keys // self.cores.step)

    def _multiply(self, nest: Nest, sums: Var, sides: tuple[Side, Side], lane: Expr, steps: int) -> None:
        """Add the products of so many steps, in a loop: written out, a kernel took ptxas 7 s and 254 registers."""
        with nest.run("step", steps) as step:
            self.cores.multiply(nest, sums, *sides, lane, depth=step * self.cores.step)
