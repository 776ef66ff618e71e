"""Runs of memory that pass through a block's shared memory: moved by 16 bytes from where sectors begin, whatever the
rows in them are long, and taken apart there (the block composition of FusionStitching, Zheng et al. 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, lcm, prod

from tvm import tirx
from tvm.ir import Var

from backends.cuda.codegen.device_functions import address, barrier, call_device
from backends.cuda.devices import WARP
from backends.cuda.kernels.registers import ACCESS_BYTES
from backends.tensorir.emit import Expr, Nest, int64
from backends.tensorir.flat_buffers import load_flat
from backends.tensorir.stages import dtype_of, item_bytes_of, shape_of

SECTOR_BYTES = 32
"""What memory brings at least: CUDA C++ programming guide, "Device memory accesses"."""
GOOD_SHARE = 0.95
"""Of the bytes of sectors, what a kernel should use."""


@dataclass
class SharedRun:
    """A run of memory in the shared memory of a block, one after another.

    Attributes:
        shared: Bytes; the element `begin` of a run lies where its 16 bytes in memory have it.
        thread: Of `threads`, all of which call what is added here.
        is_used: Whether threads may still read or write what was there before.
    """

    nest: Nest
    shared: Var
    thread: Expr
    threads: int
    is_used: bool = False

    @staticmethod
    def bytes_of(elements: int, item_bytes: int) -> int:
        """Return the shared memory of a run that begins anywhere."""
        return -(-elements * item_bytes // ACCESS_BYTES) * ACCESS_BYTES + ACCESS_BYTES

    def bring(self, source: Var, begin: Expr, end: Expr) -> None:
        """Add what brings the elements of `source` from `begin` to `end`, by their row-major positions."""
        self.reuse()
        self._move("bring_run", source, begin, end)
        barrier(self.nest)

    def store(self, target: Var, begin: Expr, end: Expr) -> None:
        """Add what stores a run that threads have put here."""
        barrier(self.nest)
        self._move("store_run", target, begin, end)

    def reuse(self) -> None:
        """Add a barrier, if one is needed, before which nobody may write what comes next."""
        if self.is_used:
            barrier(self.nest)
        self.is_used = True

    def at(self, buffer: Var, begin: Expr, position: Expr) -> Expr:
        """Return the address of the element `begin + position` of the run of a buffer that begins at `begin`."""
        item = item_bytes_of(buffer)
        first = tirx.floormod(begin, int64(ACCESS_BYTES // item))
        return address(self.shared, (first + position) * item)

    def _move(self, function: str, buffer: Var, begin: Expr, end: Expr) -> None:
        memory = tirx.address_of(load_flat(buffer, int64(0)))
        ends = (tirx.Cast("int32", each) for each in (begin, end, self.thread))
        call_device(
            self.nest, f"{function}<{item_bytes_of(buffer)}>", address(self.shared, int64(0)), memory, *ends,
            tirx.const(self.threads, "int32"),
        )  # fmt: skip


def start_run(
    nest: Nest, shared: Var, source: Var, ends: tuple[Expr, Expr], *, thread: Expr, threads: int
) -> None:  # fmt: skip
    """Add what starts to copy the elements of `source` from the first of `ends` to the other into shared memory of the
    block's own; they are there behind a wait for copies and a barrier."""
    memory = tirx.address_of(load_flat(source, int64(0)))
    places = (tirx.Cast("int32", each) for each in (*ends, thread))
    call_device(
        nest, f"start_run<{item_bytes_of(source)}>", address(shared, int64(0)), memory, *places,
        tirx.const(threads, "int32"),
    )  # fmt: skip


def start_whole(nest: Nest, source: Var, thread: Expr, threads: int) -> Var:
    """Add what starts to copy all of `source`, as `start_run` does; return where it will be."""
    elements, of_access = prod(shape_of(source)), ACCESS_BYTES // item_bytes_of(source)
    size = -(-elements // of_access) * of_access
    shared = tirx.decl_buffer((size,), dtype_of(source), f"{source.name}_held", scope="shared")
    nest.add(tirx.AllocBuffer(shared))
    start_run(nest, shared, source, (int64(0), int64(elements)), thread=thread, threads=threads)
    return shared


def sector_share(width: int, item_bytes: int, many: int, group: int) -> float:
    """Return the share of the bytes of sectors that warps ask for which read rows where they lie.

    Args:
        width: Elements of a row; rows follow each other.
        many: Neighbours that a lane reads at once.
        group: Lanes of a row, a power of two; of more than a warp each warp reads its part.
    """
    if width * item_bytes % SECTOR_BYTES == 0:
        return 1.0
    rows = max(1, WARP // group)
    asked = sectors = 0
    for first in range(0, lcm(SECTOR_BYTES // gcd(width * item_bytes, SECTOR_BYTES), rows), rows):
        for begin in range(0, width, min(group, WARP) * many):
            length = min(min(group, WARP) * many, width - begin)
            requested = [(row * width + begin) * item_bytes for row in range(first, first + rows)]
            asked += rows * length * item_bytes
            sectors += _sectors(requested, length * item_bytes)
    return asked / (SECTOR_BYTES * sectors)


def _sectors(begins: Sequence[int], length: int) -> int:
    """Return how many sectors runs of so many bytes lie in, which begin one behind the other."""
    found, last = 0, -1
    for begin in begins:
        end = (begin + length - 1) // SECTOR_BYTES
        found += end - max(begin // SECTOR_BYTES, last + 1) + 1
        last = end
    return found
