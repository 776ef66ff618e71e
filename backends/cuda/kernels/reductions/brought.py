"""Reductions that read where no sector begins, as windows of 12 channels do and sums over the rows of 65: what a block
reads passes through its shared memory, a run of memory at a time, in accesses of 16 bytes from where sectors begin."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

from tvm import tirx
from tvm.ir import TensorLoad, Var
from tvm.sym import Analyzer

from backends.cuda.codegen.device_functions import barrier, call_device
from backends.cuda.devices import STATIC_SHARED, WARP
from backends.cuda.kernels.registers import ACCESS_BYTES
from backends.cuda.kernels.runs import SECTOR_BYTES, SharedRun, start_run, start_whole
from backends.tensorir.accesses import flat_index, range_of, unravel
from backends.tensorir.emit import Expr, Nest, int64
from backends.tensorir.stages import Axis, Stage, dtype_of, item_bytes_of, loads, shape_of, substitute
from fusion.structural import contains

_DTYPES = ("float32", "float16", "bfloat16", "int32")
_RESULTS = (128, 256, 512, 1024)
"""Of a block, a thread each, beside those of even parts of axes."""
_AS_FEW = 1.02
"""How many times the fewest sectors smaller blocks may bring, which there are more of."""
_SHARED_BYTES = 16 << 10
"""Of the runs of a block, and as much of what it holds whole: an SM holds four."""
_SMALL = 8
"""How many times smaller than the results a tensor is that the L1 cache is taken to keep."""


@dataclass(frozen=True)
class AffineRead:
    """One read of a tensor, at `start + sum(steps * results' axes) + sum(inner * reduced axes)`, by its row-major
    position."""

    buffer: Var
    start: int
    steps: tuple[int, ...]
    inner: tuple[int, ...]

    @property
    def item_bytes(self) -> int:
        """Of an element."""
        return item_bytes_of(self.buffer)

    def at(self, results: Sequence[Expr], reduced: Sequence[Expr]) -> Expr:
        """Return the position that is read at these indices."""
        terms = zip((*self.steps, *self.inner), (*results, *reduced), strict=True)
        return sum((index * int64(step) for step, index in terms), int64(self.start))


@dataclass(frozen=True)
class ReductionRuns:
    """How a block brings what its results read.

    Attributes:
        reads: Of a tensor each.
        repeated: What every block reads again, and holds whole.
        behind: What is read once for each result behind it.
        stored_bytes: Of a result in memory.
        of_block: Results of a block, which follow each other.
        outer: How many of the reduced axes, outermost first, have runs of their own for each index.
        turn: Indices of the next reduced axis that a run has.
    """

    stage: Stage
    reads: tuple[AffineRead, ...]
    repeated: tuple[Var, ...]
    behind: tuple[Var, ...]
    stored_bytes: int
    of_block: int
    outer: int
    turn: int

    @property
    def results(self) -> tuple[int, ...]:
        """Extents of the results' axes; `reduced` those of the reduced ones."""
        return tuple(int(axis.extent) for axis in self.stage.spatial)

    @property
    def reduced(self) -> tuple[int, ...]:
        return tuple(int(axis.extent) for axis in self.stage.reduce)

    @property
    def aligned(self) -> int:
        """Results of a sector of what is stored, which the first thread of a block begins with; 1 where all do."""
        many = SECTOR_BYTES // self.stored_bytes
        return many if self.of_block % many else 1

    @property
    def threads(self) -> int:
        """Of a block: whole warps, so that each begins with a sector of a run."""
        return -(-(self.of_block + self.aligned - 1) // WARP) * WARP

    @property
    def turns(self) -> int:
        """Runs of the axis that has several indices in each."""
        return -(-self.reduced[self.outer] // self.turn)

    @property
    def held(self) -> tuple[Var, ...]:
        """What a block holds whole: beside what is repeated that of what is behind, as the bias of each channel or a
        scale, which it reads again, and where sectors do not begin with what a warp reads; as far as there is room."""
        found, left = list(self.repeated), STATIC_SHARED - self.shared_bytes() - sum(map(_bytes_of, self.repeated))
        for buffer in self.behind:
            elements, item = prod(shape_of(buffer)), item_bytes_of(buffer)
            is_read_again = elements <= self.of_block and elements * item % SECTOR_BYTES and buffer not in found
            if is_read_again and dtype_of(buffer) in _DTYPES and _bytes_of(buffer) <= left:
                left -= _bytes_of(buffer)
                found.append(buffer)
        return tuple(found)

    def within(self, read: AffineRead) -> int:
        """Return how far apart the elements are that one result reads of a run."""
        sizes = (self.turn, *self.reduced[self.outer + 1 :])
        return sum((size - 1) * step for size, step in zip(sizes, read.inner[self.outer :], strict=True))

    def longest(self, read: AffineRead) -> int:
        """Return the elements of a run, at most."""
        return 1 + self.within(read) + int(self._apart(read, most=True))

    def sectors(self) -> float:
        """Return how many all blocks bring and store, about: a run begins at any element of a sector, and so may what
        blocks store; what they hold whole begins with one."""
        blocks = -(-prod(self.results) // self.of_block)
        runs = blocks * prod(self.reduced[: self.outer]) * self.turns
        lengths = (
            (1 + self.within(read) + self._apart(read, most=False)) * read.item_bytes / SECTOR_BYTES + 1
            for read in self.reads
        )
        cut = blocks if self.aligned > 1 else 0
        held = blocks * sum(-(-_bytes_of(buffer) // SECTOR_BYTES) for buffer in self.held)
        return runs * sum(lengths) + held + prod(self.results) * self.stored_bytes / SECTOR_BYTES + cut

    def shared_bytes(self) -> int:
        """Return those of all runs."""
        return sum(SharedRun.bytes_of(self.longest(read), read.item_bytes) for read in self.reads)

    def _apart(self, read: AffineRead, *, most: bool) -> float:
        """Return how far apart the first and the last result of a block read, at most or in the mean: so many
        neighbours, and what lies between them wherever an outer axis goes on inside of a block."""
        results, apart, inner = self.results, float(self.of_block - 1), 1
        for place in range(len(results) - 1, 0, -1):
            inner *= results[place]
            if results[place - 1] > 1 and inner % self.of_block:
                gap = read.steps[place - 1] - 1 - _span(read.steps[place:], results[place:])
                begun = (self.of_block - 1) // inner + 1 if most else (self.of_block - 1) / inner
                whole, rest = divmod(self.of_block, inner)
                apart += min(begun if rest else whole - 1, prod(results[:place]) - 1) * gap
        return min(apart, float(_span(read.steps, results)))


def _span(steps: Sequence[int], extents: Sequence[int]) -> int:
    return sum((extent - 1) * step for extent, step in zip(extents, steps, strict=True))


def runs_of(stage: Stage, behind: Sequence[Var], *, stored_bytes: int, many: int) -> ReductionRuns | None:
    """Return how a block brings what a reduction reads, in as few sectors as possible; None where sectors begin with
    what threads read, or blocks do not read runs.

    What is repeated and too large to be held is read element by element: by threads that would have several neighbours
    it is read where it lies, with all else, in fewer sectors (1,016 channels of float16: 97%, for 87%).

    Args:
        stage: Reads memory alone.
        behind: What is read once for each result behind it.
        stored_bytes: Of what is stored of a result.
        many: Neighbours of a thread that reads where it lies.
    """
    every: dict[Var, set[AffineRead | None]] = {}
    for load in loads(stage.value):
        every.setdefault(load.source, set()).add(_affine(stage, load))
    repeated = tuple(
        buffer for buffer, places in every.items()
        if dtype_of(buffer) in _DTYPES and all(map(partial(_is_held, stage), places))
    )  # fmt: skip
    forms = [repeated] if sum(map(_bytes_of, repeated)) <= _SHARED_BYTES else []
    for held in [*forms, ()] if repeated and many == 1 else forms:
        reads = _runs_beside(stage, every, held)
        fitting = list(_fitting(stage, reads, held, tuple(behind), stored_bytes=stored_bytes)) if reads else []
        fewest = min((runs.sectors() for runs in fitting), default=0.0)
        if fitting:
            return next(runs for runs in fitting if runs.sectors() <= _AS_FEW * fewest)
    return None


def _runs_beside(
    stage: Stage, every: Mapping[Var, Collection[AffineRead | None]], held: Collection[Var]
) -> tuple[AffineRead, ...]:
    """Return the reads of what a block brings in runs, all that is large but what it holds; none where that is no run,
    or sectors begin with all of them."""
    results = prod(shape_of(stage.buffer))
    large = [buffer for buffer in every if prod(shape_of(buffer)) * _SMALL >= results and buffer not in held]
    found = tuple(read for buffer in large if len(every[buffer]) == 1 for read in every[buffer] if read is not None)
    if len(found) < len(large) or not any(_is_cut(read, stage) for read in found):
        return ()
    return found if all(_is_ordered(read, stage) and dtype_of(read.buffer) in _DTYPES for read in found) else ()


def _is_held(stage: Stage, read: AffineRead | None) -> bool:
    """Return whether blocks hold all of a tensor that is read so."""
    return read is not None and _is_repeated(read, stage) and _is_cut(read, stage)


def _bytes_of(buffer: Var) -> int:
    """Return the shared memory that holds all of a tensor."""
    return -(-prod(shape_of(buffer)) * item_bytes_of(buffer) // ACCESS_BYTES) * ACCESS_BYTES


def _fitting(
    stage: Stage, reads: tuple[AffineRead, ...], repeated: tuple[Var, ...], behind: tuple[Var, ...], *,
    stored_bytes: int,
) -> Iterator[ReductionRuns]:  # fmt: skip
    """Yield what fits the shared memory of a block, those of few results first, which read what is repeated once at
    least."""
    points = prod(int(axis.extent) for axis in stage.reduce)
    least = max((prod(shape_of(buffer)) // points for buffer in repeated), default=0)
    for of_block in _sizes([int(axis.extent) for axis in stage.spatial]):
        for outer, axis in enumerate(stage.reduce):
            many = int(axis.extent)
            for turns in range(1, many + 1):
                runs = ReductionRuns(
                    stage, reads, repeated, behind, stored_bytes, of_block=of_block, outer=outer, turn=-(-many // turns)
                )
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


def _affine(stage: Stage, load: TensorLoad) -> AffineRead | None:
    """Return a read as numbers; None where it grows by no constants, or is read at what is loaded."""
    if any(contains(index, (TensorLoad, lambda read: True)) for index in load.indices):
        return None
    analyzer, axes = Analyzer(), (*stage.spatial, *stage.reduce)
    for axis in axes:
        analyzer.bind(axis.var, range_of(axis))
    position = flat_index(shape_of(load.source), list(load.indices), analyzer)
    steps = [_step(position, axis, analyzer) for axis in axes]
    start = analyzer.simplify(substitute(position, {axis.var: int64(0) for axis in axes}))
    if not isinstance(start, tirx.IntImm) or any(step is None or step < 0 for step in steps):
        return None
    known, results = tuple(step or 0 for step in steps), len(stage.spatial)
    return AffineRead(load.source, int(start.value), known[:results], known[results:])


def _step(position: Expr, axis: Axis, analyzer: Analyzer) -> int | None:
    if axis.extent == 1:
        return 0
    step = analyzer.simplify(substitute(position, {axis.var: axis.var + 1}) - position)
    return int(step.value) if isinstance(step, tirx.IntImm) else None


def _is_ordered(read: AffineRead, stage: Stage) -> bool:
    """Return whether later results read later elements, neighbours neighbours."""
    extents = [int(axis.extent) for axis in stage.spatial]
    long = [place for place, extent in enumerate(extents) if extent > 1]
    if not long or read.steps[long[-1]] != 1:
        return False
    return all(read.steps[place] > _span(read.steps[place + 1 :], extents[place + 1 :]) for place in long)


def _is_repeated(read: AffineRead, stage: Stage) -> bool:
    """Return whether other results read the same again, between neighbours of which it grows by one, as weights of each
    channel do: no more of it than the largest blocks read element by element."""
    extents = [int(axis.extent) for axis in stage.spatial]
    neighbours = max((extent for extent, step in zip(extents, read.steps, strict=True) if step == 1), default=1)
    is_along = _span(read.steps, extents) == neighbours - 1 and any(read.inner)
    return is_along and neighbours < prod(extents) and neighbours <= max(_RESULTS)


def _is_cut(read: AffineRead, stage: Stage) -> bool:
    """Return whether sectors begin inside of what neighbouring threads read: a step between runs of neighbours is of no
    whole sectors."""
    steps = [step for step, axis in zip(read.inner, stage.reduce, strict=True) if axis.extent != 1]
    inner = 1
    for step, axis in zip(reversed(read.steps), reversed(stage.spatial), strict=True):
        if axis.extent != 1:
            steps += [step] if step != inner else []
            inner = step * int(axis.extent)
    return any(step * read.item_bytes % SECTOR_BYTES for step in steps)


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
