"""Adds what brings tensors into the shared memory of a block, all threads of which take part."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tvm import tirx
from tvm.ir import Var

from backends.cuda.codegen.device_functions import barrier, call_device
from backends.cuda.kernels.reductions.runs.plan import ReductionRuns
from backends.cuda.kernels.registers import ACCESS_BYTES
from backends.cuda.kernels.runs import SharedRun, start_run, start_whole
from backends.tensorir.accesses import unravel
from backends.tensorir.emit import Expr, Nest, int64
from backends.tensorir.stages import dtype_of, shape_of


@dataclass(frozen=True)
class BroughtRun:
    """An `InShared`: a run of a tensor, or all of it; `origin` is what to add to a position in the tensor."""

    shared: Var
    origin: Expr

    def element(self, position: Expr, at: Expr) -> Expr:
        """See `InShared`; it lies there whatever reads it."""
        return tirx.BufferLoad(self.shared, [position + self.origin])


def allocate(nest: Nest, runs: ReductionRuns) -> dict[Var, Var]:
    """Declare the shared memory of each tensor."""
    made = {}
    for read in runs.reads:
        elements = SharedRun.bytes_of(runs.longest(read), read.item_bytes) // read.item_bytes
        name = f"{read.buffer.name}_brought"
        made[read.buffer] = tirx.decl_buffer((elements,), dtype_of(read.buffer), name, scope="shared")
        nest.add(tirx.AllocBuffer(made[read.buffer]))
    return made


def bring_whole(nest: Nest, runs: ReductionRuns, thread: Expr) -> dict[Var, BroughtRun]:
    """Add what starts to bring all of the tensors that a block holds, which are there when those of its first turn
    are."""
    return {buffer: BroughtRun(start_whole(nest, buffer, thread, runs.threads), int64(0)) for buffer in runs.held}


def bring_turn(
    nest: Nest, runs: ReductionRuns, shared: dict[Var, Var], *, results: tuple[Expr, Expr],
    reduced: tuple[Expr, ...], thread: Expr,
) -> dict[Var, BroughtRun]:  # fmt: skip
    """Add what brings one run of each tensor, all threads together, which wait once for all of them; return where their
    elements are.

    Args:
        results: The first result of the block, and the last.
        reduced: The outer reduced indices, and the first of the run's turn.
    """
    found = {}
    barrier(nest)
    last = tirx.min(reduced[-1] + runs.turn, int64(runs.reduced[runs.outer])) - 1
    inner = runs.reduced[runs.outer + 1 :]
    first_at = (*reduced, *(int64(0) for _ in inner))
    last_at = (*reduced[:-1], last, *(int64(extent - 1) for extent in inner))
    for read in runs.reads:
        low = read.at(unravel(results[0], runs.results), first_at)
        high = read.at(unravel(results[1], runs.results), last_at)
        begin = nest.bind("begin", tirx.max(low, int64(0)))
        end = nest.bind("end", tirx.min(high + 1, int64(prod(shape_of(read.buffer)))))
        start_run(nest, shared[read.buffer], read.buffer, (begin, end), thread=thread, threads=runs.threads)
        of_access = int64(ACCESS_BYTES // read.item_bytes)
        origin = nest.bind("origin", int64(0) - tirx.floordiv(begin, of_access) * of_access)
        found[read.buffer] = BroughtRun(shared[read.buffer], origin)
    call_device(nest, "commit_copies")
    call_device(nest, "wait_copies<0>")
    barrier(nest)
    return found
