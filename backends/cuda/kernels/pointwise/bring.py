"""Tensors of which a block's elements lie where no sector begins: they pass through shared memory, in 16 bytes each.

Of a block's elements, which follow each other in the outputs, those of a tensor are one run of memory where the tensor
is padded, put into another, or loses a few elements a row; otherwise a run each row (or each plane, or the like).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Protocol

from tvm import tirx
from tvm.ir import Var

from backends.cuda.codegen.device_functions import address, barrier, call_device
from backends.cuda.devices import STATIC_SHARED
from backends.cuda.kernels.pointwise.boxes import Box
from backends.cuda.kernels.registers import ACCESS_BYTES
from backends.cuda.kernels.runs import SECTOR_BYTES
from backends.tensorir.accesses import unravel
from backends.tensorir.emit import Expr, Nest, int64
from backends.tensorir.flat_buffers import load_flat, store_flat
from backends.tensorir.stages import dtype_of, item_bytes_of, shape_of
from fusion.declined import Declined


@dataclass(frozen=True)
class Pieces:
    """The runs of memory that blocks bring of a tensor.

    Attributes:
        of_block: Elements of the outputs that a block has.
        cut: How many of the outermost axes have a run for each of their indices.
    """

    buffer: Var
    box: Box
    of_block: int
    cut: int

    @property
    def row(self) -> int:
        """Elements of the outputs of which the tensor's are one run."""
        return prod(self.box.extents[self.cut :])

    @property
    def many(self) -> int:
        """Runs that a block has at most."""
        return min(prod(self.box.extents[: self.cut]), (self.of_block - 2) // self.row + 2)

    @property
    def longest(self) -> int:
        """Elements of a run, at most."""
        gaps = 0
        for place in range(self.cut, len(self.box.extents) - 1):
            between = self.box.steps[place] - self.box.span(place + 1) if self.box.sizes[place] > 1 else 0
            gaps += (self.of_block // prod(self.box.extents[place + 1 :]) + 1) * between
        return min(self.box.span(self.cut), self.of_block + gaps)

    @property
    def vectors(self) -> int:
        """Accesses of a run, which begins somewhere in a sector."""
        last = SECTOR_BYTES - self.item_bytes + self.longest * self.item_bytes - 1
        return (last // SECTOR_BYTES + 1) * (SECTOR_BYTES // ACCESS_BYTES)

    @property
    def item_bytes(self) -> int:
        """Of an element."""
        return item_bytes_of(self.buffer)

    @property
    def slot(self) -> int:
        """Elements of shared memory that a run has."""
        return self.vectors * ACCESS_BYTES // self.item_bytes

    @property
    def shared_bytes(self) -> int:
        """Of all runs, and of where each begins."""
        return self.many * (self.slot * self.item_bytes + 4)

    @property
    def sectors(self) -> float:
        """How many the blocks of the outputs bring, about: a run begins at any element of a sector."""
        runs = prod(self.box.sizes[: self.cut]) + prod(self.box.extents) / self.of_block
        held = prod(self.box.sizes[: self.cut]) * self.box.span(self.cut) * self.item_bytes
        return (held + runs * (SECTOR_BYTES - self.item_bytes)) / SECTOR_BYTES


def pieces_of(buffer: Var, box: Box, of_block: int) -> Pieces:
    """Return the runs that bring the fewest sectors.

    Raises:
        Declined: Neighbours in the outputs are none in the tensor, no access brings its elements, or a block's are too
            many for its shared memory.
    """
    if not box.is_ordered:
        raise Declined(f"{buffer.name} is not read in its own order")
    if dtype_of(buffer) not in _DTYPES:
        raise Declined(f"{buffer.name} is {dtype_of(buffer)}")
    cuts = (Pieces(buffer, box, of_block, cut) for cut in range(len(box.extents)))
    fitting = [pieces for pieces in cuts if pieces.shared_bytes <= STATIC_SHARED]
    if not fitting:
        raise Declined(f"the elements of {buffer.name} that a block reads are too many for its shared memory")
    return min(fitting, key=lambda pieces: pieces.sectors)


_DTYPES = ("float32", "float16", "bfloat16", "int32", "int64")


class InShared(Protocol):
    """Elements of a tensor in a block's shared memory."""

    def element(self, position: Expr, at: Expr) -> Expr:
        """Return the load of an element, by its position in the tensor, and by that in the outputs which reads it."""
        ...


@dataclass(frozen=True)
class Brought:
    """The runs of a tensor in a block's shared memory.

    Attributes:
        first_row: Of the block.
        shared: The elements of all runs, one slot behind the other.
        origins: By run, what to add to the position of an element in the tensor for that in `shared`.
    """

    pieces: Pieces
    first_row: Expr
    shared: Var
    origins: Var

    def element(self, position: Expr, at: Expr) -> Expr:
        """See `InShared`."""
        run = tirx.floordiv(at, int64(self.pieces.row)) - self.first_row if self.pieces.many > 1 else int64(0)
        origin = tirx.Cast("int64", load_flat(self.origins, run))
        return tirx.BufferLoad(self.shared, [position + origin])


def bring(nest: Nest, all_pieces: list[Pieces], begin: Expr, thread: Expr, threads: int) -> Mapping[Var, Brought]:
    """Add what brings the elements of tensors that a block reads, from the position `begin` of the outputs on, all of
    whose threads call it; return where they are."""
    found = {pieces.buffer: _allocated(nest, pieces, begin) for pieces in all_pieces}
    for brought in found.values():
        _copy(nest, brought, begin, thread, threads)
    call_device(nest, "commit_copies")
    call_device(nest, "wait_copies<0>")
    barrier(nest)
    return found


def _allocated(nest: Nest, pieces: Pieces, begin: Expr) -> Brought:
    name, many = pieces.buffer.name, pieces.many
    shared = tirx.decl_buffer((many * pieces.slot,), dtype_of(pieces.buffer), f"{name}_brought", scope="shared")
    origins = tirx.decl_buffer((many,), "int32", f"{name}_origins", scope="shared")
    nest.extend(map(tirx.AllocBuffer, (shared, origins)))
    first_row = nest.bind(f"{name}_row", tirx.floordiv(begin, int64(pieces.row)))
    return Brought(pieces, first_row, shared, origins)


def _copy(nest: Nest, brought: Brought, begin: Expr, thread: Expr, threads: int) -> None:
    """Add the copies of a tensor, each the work of a thread, and the origins of its runs.

    ```
    for turn in range(ceil(runs * vectors / threads)):
        run, vector = divmod(turn * threads + thread, vectors)
        bring_vector(shared + run * slot, x, first, end, elements of x, vector)
        if vector == 0: origins[run] = ...
    ```
    """
    pieces, box = brought.pieces, brought.pieces.box
    elements, units = prod(box.extents), pieces.many * pieces.vectors
    end = tirx.min(begin + pieces.of_block, int64(elements))
    with nest.run("turn", -(-units // threads)) as turn:
        unit = nest.bind("unit", turn * threads + thread)
        run = nest.bind("run", tirx.floordiv(unit, int64(pieces.vectors)))
        vector = nest.bind("vector", tirx.floormod(unit, int64(pieces.vectors)))
        row = nest.bind("row", brought.first_row + run)
        before = row * pieces.row
        outer = unravel(row, box.extents[: pieces.cut]) if pieces.cut else []
        ends = (tirx.max(begin - before, int64(0)), tirx.min(end - before, int64(pieces.row)) - 1)
        inner = box.extents[pieces.cut :]
        first = nest.bind("first", box.first_from([*outer, *unravel(ends[0], inner)]))
        last = nest.bind("last", box.last_to([*outer, *unravel(ends[1], inner)]))
        is_run = tirx.And(run < pieces.many, before < end) if pieces.cut else run < pieces.many
        with nest.when(is_run):
            slot = run * pieces.slot
            memory = tirx.address_of(load_flat(pieces.buffer, int64(0)))
            limits = (first, last + 1, int64(prod(shape_of(pieces.buffer))), vector)
            call_device(
                nest, f"bring_vector<{pieces.item_bytes}>", address(brought.shared, slot), memory,
                *(tirx.Cast("int32", each) for each in limits),
            )  # fmt: skip
            with nest.when(vector.equal(int64(0))):
                of_access = int64(ACCESS_BYTES // pieces.item_bytes)
                origin = slot - tirx.floordiv(first, of_access) * of_access
                nest.add(store_flat(brought.origins, run, tirx.Cast("int32", origin)))
