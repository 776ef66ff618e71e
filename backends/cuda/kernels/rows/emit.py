"""The loops of stages over rows, of which each is the work of some lanes of a warp, or of all warps of a block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import tvm_ffi
from tvm import tirx
from tvm.ir import Var
from tvm.tirx import ForKind

from backends.cuda.codegen.device_functions import barrier
from backends.cuda.devices import WARP
from backends.cuda.kernels.device_arithmetic import combined
from backends.cuda.kernels.launch import MOST_ELEMENTS, bound_loop
from backends.cuda.kernels.registers import ACCESS_BYTES, Lanes, copy_lanes
from backends.cuda.kernels.rows.held import HeldRow, Pass
from backends.cuda.kernels.rows.read import RowRegion, read_rows
from backends.cuda.kernels.warps import shuffled
from backends.tensorir.accesses import flat_index, unravel
from backends.tensorir.emit import Expr, Nest, guard, int64
from backends.tensorir.flat_buffers import store_flat
from backends.tensorir.inlining import Resolver
from backends.tensorir.stages import Stage, dtype_of, loads, shape_of
from fusion.declined import Declined

_THREADS = 128
_OF_THREAD = 32
"""Elements of a row that a thread holds at most, a register each for each value that is held."""
_MOST_THREADS = 1024


def emit_rows(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return `func` with loops bound to blocks and threads, of one dimension each: 1 to 32 lanes of a warp share a row.

    Rows that are too long for a warp are shared by all warps of a block, of up to 1,024 threads, which hand each other
    their results through shared memory.

    ```
    for block, thread in T.grid(ceil(rows / 16), 128):               # blockIdx.x, threadIdx.x: 8 lanes for a row of 64
        row = min(block * 16 + thread // 8, rows - 1)                # lanes without a row take part in shuffles
        for chunk in T.unroll(2):
            column = (chunk * 8 + thread % 8) * 4
            x[chunk * 4 : chunk * 4 + 4] = a[row, column : column + 4]
            for lane in T.unroll(4): most = max(most, x[chunk * 4 + lane])
        for distance in 4, 2, 1: most = max(most, shuffle_xor(most, distance))
        # of several warps: shared[warp] = most; barrier; most = max(shared[0], shared[1], ...)
        ...
        if block * 16 + thread // 8 < rows: b[row, column : column + 4] = y[chunk * 4 : chunk * 4 + 4]
    ```

    Raises:
        Declined: `read_rows` cannot read it, or its rows are too long or too many.
    """
    region = read_rows(func)
    if region.width > _OF_THREAD * _MOST_THREADS:
        raise Declined(f"rows of {region.width} elements are too long for a block")
    if region.rows * region.width > MOST_ELEMENTS:
        raise Declined("it has more elements than an int32 counts")
    many = _lanes(region)
    vectors = region.width // many
    group = _threads_of_row(vectors, region.width)
    threads = group if group > WARP else _THREADS  # warps that share a row have the shared memory of their block
    of_block = threads // group
    nest = Nest()
    with (
        bound_loop(nest, "blockIdx.x", -(-region.rows // of_block)) as block,
        bound_loop(nest, "threadIdx.x", threads) as thread,
    ):
        wanted = block * of_block + tirx.floordiv(thread, int64(group))
        is_whole = region.rows % of_block == 0
        nest.add(tirx.Bind(region.row, wanted if is_whole else tirx.min(wanted, int64(region.rows - 1))))
        member = nest.bind("member", tirx.floormod(thread, int64(group)))
        is_stored = None if is_whole else wanted < region.rows
        chunks = -(-vectors // group)
        share = _Share(region, many, group=group, chunks=chunks, member=member, is_stored=is_stored)
        with nest.apart() as body:
            writer = _Writer(nest, share, HeldRow(share.chunks * many))
            for stage in region.stages:
                writer.add(stage)
        nest.extend(tirx.AllocBuffer(register) for register in writer.held.registers)
        nest.extend(body)
    return func.with_body(nest.finish())


def _threads_of_row(vectors: int, width: int) -> int:
    """Return how many threads share a row, a power of two: lanes of a warp, or where these would hold too much, warps
    of which each thread has at least two accesses."""
    if width <= WARP * _OF_THREAD:
        return min(WARP, 1 << (vectors - 1).bit_length())
    wanted = max(-(-width // _OF_THREAD), min(vectors // 2, _MOST_THREADS // 2))
    return int(min(_MOST_THREADS, 1 << (wanted - 1).bit_length()))


def _lanes(region: RowRegion) -> int:
    """Return how many neighbours one access brings: all rows begin where that is aligned."""
    stages = (*region.stages, *region.inlined.values())
    made = {stage.buffer for stage in stages} - set(region.outputs)
    read = {load.source for stage in stages for load in loads(stage.value)} - made
    widest = max(int(tvm_ffi.dtype(dtype_of(buffer)).itemsize) for buffer in read | set(region.outputs))
    many = ACCESS_BYTES // widest
    while region.width % many:
        many //= 2
    return many


@dataclass(frozen=True)
class _Share:
    """What one thread has of a row: `chunks` times `many` neighbours.

    Attributes:
        group: Threads that share the row, a power of two.
        member: Which of them the thread is.
        is_stored: Whether the thread's row is one of its own; None where that is so of all threads.
    """

    region: RowRegion
    many: int
    group: int
    chunks: int
    member: Var
    is_stored: Expr | None

    @property
    def is_full(self) -> bool:
        """Whether all chunks of all threads are inside of the row."""
        return self.chunks * self.group * self.many == self.region.width


@dataclass
class _Writer:
    """Adds the loops of one stage after the other.

    Attributes:
        held: The thread's registers.
        kept: Those of what stages made, by their buffers.
        whole: Of these buffers, what are rows; the others are one number.
        chunk: What the loop over chunks is called in all passes; so for `lane`.
    """

    nest: Nest
    share: _Share
    held: HeldRow
    kept: dict[Var, Var] = field(default_factory=dict)
    whole: set[Var] = field(default_factory=set)
    chunk: Var = field(default_factory=lambda: Var("chunk", "int64"))
    lane: Var = field(default_factory=lambda: Var("lane", "int64"))

    def add(self, stage: Stage) -> None:
        """Add what computes a stage into registers, and stores it if it is an output."""
        region = self.share.region
        is_row = stage.combine is None and (bool(region.axes_of(stage)) or stage.buffer in region.outputs)
        elements = None if is_row else 1
        result = self.held.register(stage.buffer.name, dtype_of(stage.buffer), elements)
        if stage.combine is not None:
            self._reduce(stage, result)
        elif is_row:
            self._over_row(stage, lambda slot, value: store_flat(result, slot, value), result)
        else:
            self._compute_once(stage, result)
        self.kept[stage.buffer] = result
        if is_row:
            self.whole.add(stage.buffer)

    def _reduce(self, stage: Stage, result: Var) -> None:
        """Add the reduction of what each thread has, then of what the lanes of a warp have, then of its warps."""
        so_far = tirx.BufferLoad(result, [int64(0)])
        self.nest.add(store_flat(result, int64(0), stage.identity))
        self._over_row(stage, lambda slot, value: store_flat(result, int64(0), combined(stage, so_far, value)))
        other = self.held.register("other", dtype_of(result), 1)
        distance = min(self.share.group, WARP) // 2
        while distance:
            self.nest.add(store_flat(other, int64(0), shuffled(so_far, distance)))
            both = combined(stage, so_far, tirx.BufferLoad(other, [int64(0)]))
            self.nest.add(store_flat(result, int64(0), both))
            distance //= 2
        if self.share.group > WARP:
            self._reduce_warps(stage, result)

    def _reduce_warps(self, stage: Stage, result: Var) -> None:
        """Add the reduction of what the warps of a block have, each thread of which gets the result."""
        warps, so_far = self.share.group // WARP, tirx.BufferLoad(result, [int64(0)])
        shared = tirx.decl_buffer((warps,), dtype_of(result), f"{result.name}shared", scope="shared")
        self.held.registers.append(shared)
        with self.nest.when(tirx.floormod(self.share.member, int64(WARP)).equal(int64(0))):
            self.nest.add(store_flat(shared, tirx.floordiv(self.share.member, int64(WARP)), so_far))
        barrier(self.nest)
        self.nest.add(store_flat(result, int64(0), tirx.BufferLoad(shared, [int64(0)])))
        for warp in range(1, warps):
            both = combined(stage, so_far, tirx.BufferLoad(shared, [int64(warp)]))
            self.nest.add(store_flat(result, int64(0), both))

    def _compute_once(self, stage: Stage, result: Var) -> None:
        """Add a number of the row, which all lanes of its group compute alike."""
        analyzer = Lanes(self.lane, 1, [(self.share.region.row, self.share.region.rows)]).analyzer()
        resolver = Resolver(self.share.region.inlined, self._number, analyzer)
        value = resolver.resolve(stage.value, {axis.var: int64(0) for axis in stage.spatial})
        self.nest.extend(tirx.Bind(var, bound) for var, bound in resolver.bindings)
        self.nest.add(store_flat(result, int64(0), value))

    def _over_row(self, stage: Stage, use: Callable[[Expr, Expr], tirx.Stmt], stored: Var | None = None) -> None:
        """Add `use` of each element that the thread has, given where in registers it belongs."""
        share, region = self.share, self.share.region
        chunk, lane = Var("chunk", "int64"), Var("lane", "int64")
        vector = chunk * share.group + share.member
        column, slot = vector * share.many + lane, chunk * share.many + lane
        ranges = [(region.row, region.rows), (chunk, share.chunks), (share.member, share.group)]
        lanes = Lanes(lane, share.many, ranges)
        axes = region.axes_of(stage)
        place = {axis.var: int64(0) for axis in stage.spatial}
        place |= dict(zip((axis.var for axis in axes), unravel(column, [axis.extent for axis in axes]), strict=True))
        resolver = Resolver(region.inlined, self._element_of(column, slot, lanes), lanes.analyzer())
        value = resolver.resolve(stage.value, place)
        is_inside = None if share.is_full else vector * share.many < region.width
        with self.nest.apart() as body, guard(self.nest, is_inside):
            names = {chunk: self.chunk, lane: self.lane, share.member: share.member}
            loading = Pass(self.nest, self.held, lanes, slot, names)
            bindings = [tirx.Bind(var, loading.take(bound)) for var, bound in resolver.bindings]
            value = loading.take(value)
            self.nest.add_loop(lane, int64(share.many), ForKind.UNROLLED, [*bindings, use(slot, value)])
            if stored is not None and stage.buffer in region.outputs:
                begin = region.row * region.width + vector * share.many
                self._store(region.outputs[stage.buffer], begin, stored, chunk * share.many)
        self.nest.add_loop(chunk, int64(share.chunks), ForKind.UNROLLED, body)

    def _store(self, output: Var, begin: Expr, registers: Var, slot: Expr) -> None:
        with guard(self.nest, self.share.is_stored):
            copy_lanes(self.nest, output, begin, registers, slot, many=self.share.many)

    def _number(self, buffer: Var, indices: Sequence[Expr]) -> Expr:
        """Return a number that stages made of the row, or one in memory."""
        if buffer not in self.kept:
            return tirx.BufferLoad(buffer, list(indices))
        if buffer in self.whole:
            raise Declined(f"{buffer.name} is read at one column")
        return tirx.BufferLoad(self.kept[buffer], [int64(0)])

    def _element_of(self, column: Expr, slot: Expr, lanes: Lanes) -> Callable[[Var, Sequence[Expr]], Expr]:
        """Return what gives the load of an element: of this column where stages made rows, otherwise as of a number."""
        analyzer = lanes.analyzer()

        def element(buffer: Var, indices: Sequence[Expr]) -> Expr:
            if buffer not in self.whole:
                return self._number(buffer, indices)
            if not analyzer.can_prove_equal(flat_index(shape_of(buffer), indices, analyzer), column):
                raise Declined(f"{buffer.name} is read at another column")
            return tirx.BufferLoad(self.kept[buffer], [slot])

        return element
