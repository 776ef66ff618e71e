"""Chooses how blocks bring what a reduction reads, in as few sectors as possible."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import prod

from tvm.ir import Var

from backends.cuda.devices import WARP
from backends.cuda.kernels.reductions.in_place import lanes_of
from backends.cuda.kernels.reductions.read import Reduction
from backends.cuda.kernels.reductions.runs.plan import BROUGHT_DTYPES, ReductionRuns, held_bytes
from backends.cuda.kernels.reductions.runs.read import AffineRead, reads_of
from backends.tensorir.stages import dtype_of, shape_of

_RESULTS = (128, 256, 512, 1024)
"""Of a block, a thread each, beside those of even parts of axes."""
_AS_FEW = 1.02
"""How many times the fewest sectors smaller blocks may bring, which there are more of."""
_SHARED_BYTES = 16 << 10
"""Of the runs of a block, and as much of what it holds whole: an SM holds four."""
_SMALL = 8
"""How many times smaller than the results a tensor is that the L1 cache is taken to keep."""

_Reads = Mapping[Var, Collection[AffineRead | None]]


def runs_of(reduction: Reduction) -> ReductionRuns | None:
    """Return how a block brings what a reduction reads, in as few sectors as possible; None where sectors begin with
    what threads read, or blocks do not read runs.

    What is repeated and too large to be held is read element by element: by threads that would have several neighbours
    it is read where it lies, with all else, in fewer sectors (1,016 channels of float16: 97%, for 87%).
    """
    every = reads_of(reduction.inlined)
    repeated = tuple(
        buffer for buffer, places in every.items() if dtype_of(buffer) in BROUGHT_DTYPES and all(map(_is_held, places))
    )
    forms = [repeated] if sum(map(held_bytes, repeated)) <= _SHARED_BYTES else []
    for held in [*forms, ()] if repeated and lanes_of(reduction) == 1 else forms:
        reads = _runs_beside(reduction, every, held)
        fitting = list(_fitting(reduction, reads, held)) if reads else []
        fewest = min((runs.sectors() for runs in fitting), default=0.0)
        if fitting:
            return next(runs for runs in fitting if runs.sectors() <= _AS_FEW * fewest)
    return None


def _is_held(read: AffineRead | None) -> bool:
    """Return whether blocks hold all of a tensor that is read so: no more of it than the largest of them read element
    by element."""
    return read is not None and read.is_repeated and read.neighbours <= max(_RESULTS) and read.is_cut


def _runs_beside(reduction: Reduction, every: _Reads, held: Collection[Var]) -> tuple[AffineRead, ...]:
    """Return the reads of what a block brings in runs, all that is large but what it holds; none where that is no run,
    or sectors begin with all of them."""
    large = [buffer for buffer in every if prod(shape_of(buffer)) * _SMALL >= reduction.results and buffer not in held]
    found = tuple(read for buffer in large if len(every[buffer]) == 1 for read in every[buffer] if read is not None)
    if len(found) < len(large) or not any(read.is_cut for read in found):
        return ()
    return found if all(read.is_ordered and dtype_of(read.buffer) in BROUGHT_DTYPES for read in found) else ()


def _fitting(
    reduction: Reduction, reads: tuple[AffineRead, ...], repeated: tuple[Var, ...]
) -> Iterator[ReductionRuns]:
    """Yield what fits the shared memory of a block, those of few results first, which read what is repeated once at
    least."""
    points = prod(int(axis.extent) for axis in reduction.stage.reduce)
    least = max((prod(shape_of(buffer)) // points for buffer in repeated), default=0)
    for of_block in _sizes([int(axis.extent) for axis in reduction.stage.spatial]):
        for outer, axis in enumerate(reduction.stage.reduce):
            many = int(axis.extent)
            for turns in range(1, many + 1):
                runs = ReductionRuns(reduction, reads, repeated, of_block=of_block, outer=outer, turn=-(-many // turns))
                if of_block >= least and runs.shared_bytes() <= _SHARED_BYTES and runs.threads <= max(_RESULTS):
                    yield runs
                    break


def _sizes(extents: Sequence[int]) -> list[int]:
    """Return how many results blocks may have: beside round numbers even parts of an axis, with all that is inside of
    it, so that no block goes on in the next row of an image."""
    found = set(_RESULTS)
    for place, extent in enumerate(extents):
        inner = prod(extents[place + 1 :])
        found |= {inner * many for many in range(1, max(_RESULTS) // inner + 1) if extent % many == 0}
    return sorted(size for size in found if size > WARP // 2)
