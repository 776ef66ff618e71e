"""A tile of an operand in shared memory: how its lines are swizzled, so that banks are asked once, and how it comes.

A line holds what lies next to each other in memory, in vectors of 16 bytes. `ldmatrix` and a quarter of a warp read one
vector of eight lines at once; 32 banks are eight vectors wide, so lines keep their vectors in different orders:

    vectors of a line: 4        line 0 | 0 1 2 3   line 1 | 0 1 2 3        (a line of banks holds two lines)
                                line 2 | 1 0 3 2   line 3 | 1 0 3 2
                                line 4 | 2 3 0 1   ...
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import Var

from backends.cuda.codegen.device_functions import address, call_device
from backends.cuda.kernels.matmul.operand import MatrixOperand
from backends.tensorir.emit import Nest, guard, int64
from backends.tensorir.flat_buffers import load_flat

Expr = Any
VECTOR_BYTES = 16
_PERIOD = 8
"""Vectors that all banks hold: 32 banks of 4 bytes, CUDA C++ programming guide, "Shared memory"."""
_UNROLLED = 16
"""Copies of a thread for one tile that are written out; more are a loop. ptxas keeps what the addresses of all of them
have in common, so that 64 copies of single elements of windows took all 255 registers, and spilled 224 bytes."""


@dataclass(frozen=True)
class Tile:
    """`outer` times `depth` elements of an operand.

    Attributes:
        swizzle: By how many vectors neighbouring lines differ: 2 where a warp reads words of two neighbouring vectors.
    """

    operand: MatrixOperand
    outer: int
    depth: int
    swizzle: int = 1

    @property
    def line(self) -> int:
        """Elements of a line."""
        return self.depth if self.operand.by_depth else self.outer

    @property
    def lines(self) -> int:
        """How many there are."""
        return self.outer if self.operand.by_depth else self.depth

    @property
    def line_bytes(self) -> int:
        """Size of a line, a multiple of that of a vector."""
        return self.line * self.operand.item_bytes

    @property
    def bytes(self) -> int:
        """Size of the tile."""
        return self.line_bytes * self.lines

    def at(self, line: Expr, low: Expr, byte: Expr) -> Expr:
        """Return where a byte of a line is, from the tile's begin on.

        Args:
            low: The line's number, or its rest of a division by 8: what the compiler can move out of loops.
        """
        vectors = self.line_bytes // VECTOR_BYTES
        wide = min(_PERIOD, vectors)
        turn = tirx.floormod(tirx.floordiv(low, int64(_PERIOD // wide)) * self.swizzle, int64(wide))
        vector = tirx.floordiv(byte, int64(VECTOR_BYTES))
        rest = tirx.floormod(byte, int64(VECTOR_BYTES))
        return line * self.line_bytes + tirx.bitwise_xor(vector, turn) * VECTOR_BYTES + rest

    def copy(self, nest: Nest, to: tuple[Var, Expr], begin: Begin, thread: Expr, threads: int) -> None:
        """Add what the threads of a block do to bring the tile into shared memory, each its share of the copies.

        Args:
            to: A buffer of bytes, and where in it the tile begins.
        """
        copies = self.line // self.operand.many * self.lines
        turns = copies // threads
        if turns > _UNROLLED:
            with nest.run("copy", turns) as turn:
                self._copy_one(nest, to, begin, nest.bind("which", thread + turn * threads))
        for turn in range(0 if turns <= _UNROLLED else turns, -(-copies // threads)):
            which = nest.bind("which", thread + turn * threads)
            with guard(nest, None if (turn + 1) * threads <= copies else which < copies):
                self._copy_one(nest, to, begin, which)

    def _copy_one(self, nest: Nest, to: tuple[Var, Expr], begin: Begin, which: Var) -> None:
        operand, many = self.operand, self.operand.many
        of_line = self.line // many
        line = nest.bind("line", tirx.floordiv(which, int64(of_line)))
        element = nest.bind("element", tirx.floormod(which, int64(of_line)) * many)
        outer, depth = (line, element) if operand.by_depth else (element, line)
        source, bytes_ = self._source(begin, nest.bind("outer", begin.outer + outer), begin.depth + depth)
        place = to[1] + self.at(line, line, element * operand.item_bytes)
        call_device(nest, f"copy_async<{many * operand.item_bytes}>", address(to[0], place), source, bytes_)

    def _source(self, begin: Begin, outer: Expr, depth: Expr) -> tuple[Expr, Expr]:
        """Return where a copy reads, and how many bytes: none outside of the operand."""
        operand = self.operand
        position, conditions = operand.at(begin.batch, outer, depth)
        if operand.extent % self.outer:
            conditions.append(outer < operand.extent)
        if not begin.is_inside or operand.depths % self.depth:
            conditions.append(depth < operand.depths)
        size = tirx.const(self.operand.many * operand.item_bytes, "int32")
        if not conditions:
            return tirx.address_of(load_flat(operand.buffer, position)), size
        is_inside = conditions[0]
        for condition in conditions[1:]:
            is_inside = tirx.And(is_inside, condition)
        position = tirx.Select(is_inside, position, int64(0))
        size = tirx.Select(is_inside, size, tirx.const(0, "int32"))
        return tirx.address_of(load_flat(operand.buffer, position)), size


@dataclass(frozen=True)
class Begin:
    """Where a tile begins in its operand.

    Attributes:
        is_inside: Whether `depth` is below the operand's extent for all tiles that are asked for.
    """

    batch: Expr
    outer: Expr
    depth: Expr
    is_inside: bool
