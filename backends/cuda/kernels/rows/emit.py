"""The loops of stages over rows, of which each is the work of some lanes of a warp, or of all warps of a block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tvm import tirx
from tvm.ir import Var
from tvm.tirx import ForKind

from backends.cuda.codegen.device_functions import barrier, call_device
from backends.cuda.devices import WARP, CudaDevice
from backends.cuda.kernels.device_arithmetic import combined
from backends.cuda.kernels.launch import bound_loop
from backends.cuda.kernels.registers import Lanes, copy_lanes
from backends.cuda.kernels.rows.held import HeldRow, Pass
from backends.cuda.kernels.rows.read import RowRegion, read_rows
from backends.cuda.kernels.rows.share import LONGEST, RowShare, fills_row, lanes_of, threads_of_block, threads_of_row
from backends.cuda.kernels.runs import SharedRun
from backends.cuda.kernels.warps import shuffled
from backends.tensorir.accesses import flat_index, unravel
from backends.tensorir.emit import Expr, Nest, guard, int64
from backends.tensorir.flat_buffers import store_flat
from backends.tensorir.inlining import Resolver
from backends.tensorir.stages import Stage, dtype_of, shape_of
from fusion.declined import Declined

_FLOAT_BYTES = 4
_ROWS, _COLUMNS = "rows", "columns"
"""What a block brings as one run: its rows, or what all rows have at each column."""


def emit_rows(func: tirx.PrimFunc, device: CudaDevice) -> tirx.PrimFunc:
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

    Where the requests of warps would begin inside of sectors, as of rows of 197 floats, the block's rows, which adjoin
    in memory, pass through shared memory as one run; so do numbers that are outputs, one of each row:

    ```
        bring_run(shared, a, block * 8 * 197, min((block + 1) * 8, rows) * 197); barrier
        x[chunk] = shared[thread // 32 * 197 + chunk * 32 + thread % 32]
        ...
        shared[thread // 32 * 197 + chunk * 32 + thread % 32] = y[chunk]; barrier
        store_run(shared, b, block * 8 * 197, min((block + 1) * 8, rows) * 197)
    ```

    Raises:
        Declined: `read_rows` cannot read it, or its rows are too long.
    """
    return func.with_body(emit_region(read_rows(func), device))


def emit_region(region: RowRegion, device: CudaDevice) -> tirx.Stmt:
    """Return the loops over rows, as `emit_rows` shows them.

    Raises:
        Declined: The rows are too long.
    """
    if region.width > LONGEST:
        raise Declined(f"rows of {region.width} elements are too long for a block")
    many = lanes_of(region)
    vectors = region.width // many
    group = threads_of_row(vectors, region.width)
    threads, shared_bytes = threads_of_block(region, many, group, device)
    of_block = threads // group
    nest = Nest()
    with (
        bound_loop(nest, "blockIdx.x", -(-region.rows // of_block)) as block,
        bound_loop(nest, "threadIdx.x", threads) as thread,
    ):
        first = nest.bind("first", block * of_block)
        wanted = first + tirx.floordiv(thread, int64(group))
        is_whole = region.rows % of_block == 0
        nest.add(tirx.Bind(region.row, wanted if is_whole else tirx.min(wanted, int64(region.rows - 1))))
        member = nest.bind("member", tirx.floormod(thread, int64(group)))
        is_stored = None if is_whole else wanted < region.rows
        behind = first + of_block if is_whole else tirx.min(first + of_block, int64(region.rows))
        chunks = -(-vectors // group)
        share = RowShare(
            region, many, group=group, chunks=chunks, member=member, is_stored=is_stored, rows=(first, behind),
            is_run=shared_bytes > 0,
        )  # fmt: skip
        size = max(shared_bytes, SharedRun.bytes_of(of_block, _FLOAT_BYTES))
        shared = tirx.decl_buffer((size,), "uint8", "run", scope="shared.dyn")
        with nest.apart() as body:
            run = SharedRun(nest, shared, thread, threads)
            writer = _Writer(nest, share, HeldRow(share.chunks * many), run)
            for stage in region.stages:
                writer.add(stage)
        nest.extend(tirx.AllocBuffer(register) for register in writer.held.registers)
        if run.is_used:
            nest.add(tirx.AllocBuffer(shared))
        nest.extend(body)
    return nest.finish()


@dataclass
class _Writer:
    """Adds the loops of one stage after the other.

    Attributes:
        held: The thread's registers.
        run: The block's shared memory.
        kept: Those of what stages made, by their buffers.
        whole: Of these buffers, what are rows; the others are one number.
        vector: What the place of a thread's neighbours in the row is called in all passes; so for `lane`.
    """

    nest: Nest
    share: RowShare
    held: HeldRow
    run: SharedRun
    kept: dict[Var, Var] = field(default_factory=dict)
    whole: set[Var] = field(default_factory=set)
    vector: Var = field(default_factory=lambda: Var("vector", "int64"))
    lane: Var = field(default_factory=lambda: Var("lane", "int64"))

    def add(self, stage: Stage) -> None:
        """Add what computes a stage into registers, and stores it if it is an output."""
        region = self.share.region
        is_output = stage.buffer in region.outputs
        has_columns = bool(region.axes_of(stage)) or (is_output and fills_row(region, stage.buffer))
        is_row = stage.combine is None and has_columns
        elements = None if is_row else 1
        result = self.held.register(stage.buffer.name, dtype_of(stage.buffer), elements)
        if stage.combine is not None:
            self._reduce(stage, result)
        elif is_row:
            self._over_row(stage, lambda slot, value: store_flat(result, slot, value), result)
        else:
            self._compute_once(stage, result)
            if is_output:
                self._store_number(region.outputs[stage.buffer], result)
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
        chunk, vector, lane = (Var(name, "int64") for name in ("chunk", "vector", "lane"))
        column, slot = vector * share.many + lane, chunk * share.many + lane
        lanes = Lanes(lane, share.many, [(region.row, region.rows), (vector, region.width // share.many)])
        axes = region.axes_of(stage)
        place = {axis.var: int64(0) for axis in stage.spatial}
        place |= dict(zip((axis.var for axis in axes), unravel(column, [axis.extent for axis in axes]), strict=True))
        resolver = Resolver(region.inlined, self._element_of(column, slot, lanes), lanes.analyzer())
        value = resolver.resolve(stage.value, place)
        mine = chunk * share.group + share.member
        is_inside = None if share.is_full else mine * share.many < region.width
        begin = region.row * region.width + vector * share.many
        is_stored = stored is not None and stage.buffer in region.outputs
        with self.nest.apart() as body, guard(self.nest, is_inside):
            self.nest.add(tirx.Bind(vector, mine))
            names = {vector: self.vector, lane: self.lane}
            runs = {_ROWS: begin, _COLUMNS: vector * share.many} if share.is_run else {}
            loading = Pass(self.nest, lanes, self.held, slot=slot, names=names, runs=runs)
            bindings = loading.bind(resolver.bindings)
            value = loading.take(value)
            self.nest.add_loop(lane, int64(share.many), ForKind.UNROLLED, [*bindings, use(slot, value)])
            if is_stored and not share.is_run:
                with guard(self.nest, share.is_stored):
                    copy_lanes(
                        self.nest, region.outputs[stage.buffer], begin, stored, chunk * share.many, many=share.many
                    )
        for kind, source, registers in loading.brought:
            self._bring(kind, source, registers)
        self.nest.add_loop(chunk, int64(share.chunks), ForKind.UNROLLED, body)
        if is_stored and share.is_run:
            self._store_run(region.outputs[stage.buffer], stored)

    def _bring(self, kind: str, source: Var, registers: Var) -> None:
        """Add what brings the block's rows, or a row that all have, of which each thread takes its elements."""
        width, rows = self.share.region.width, self.share.rows
        begin, end = (row * width for row in rows) if kind == _ROWS else (int64(0), int64(width))
        self.run.bring(source, begin, end)
        with self._each_vector() as (slot, row, column):
            at = self.run.at(source, begin, row * width + column if kind == _ROWS else column)
            call_device(self.nest, f"take_elements<{self.share.many}>", registers, slot, at)

    def _store_run(self, output: Var, registers: Var) -> None:
        """Add what stores the block's rows, to which each thread puts its elements."""
        begin, end = (row * self.share.region.width for row in self.share.rows)
        self.run.reuse()
        with self._each_vector() as (slot, row, column), guard(self.nest, self.share.is_stored):
            at = self.run.at(output, begin, row * self.share.region.width + column)
            call_device(self.nest, f"put_elements<{self.share.many}>", at, registers, slot)
        self.run.store(output, begin, end)

    def _store_number(self, output: Var, register: Var) -> None:
        """Add what stores a number of each row, which follow each other in memory."""
        first, end = self.share.rows
        self.run.reuse()
        with self.nest.when(self.share.member.equal(int64(0))), guard(self.nest, self.share.is_stored):
            at = self.run.at(output, first, self.share.region.row - first)
            call_device(self.nest, "put_elements<1>", at, register, tirx.const(0, "int32"))
        self.run.store(output, first, end)

    @contextmanager
    def _each_vector(self) -> Iterator[tuple[Expr, Expr, Expr]]:
        """Open what is done for each run of a thread's neighbours: where it is in registers, and which row and column
        of the block's rows."""
        share, region = self.share, self.share.region
        with self.nest.run("chunk", share.chunks, ForKind.UNROLLED) as chunk:
            vector = chunk * share.group + share.member
            with guard(self.nest, None if share.is_full else vector * share.many < region.width):
                yield chunk * share.many, region.row - share.rows[0], vector * share.many

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
