"""A product with weights of 4 bits, which stay so in memory, as one kernel.

    for row in parallel
      digits = the row in bytes                             `digits_function`, once for all columns
    for task in parallel: (chunk of rows, share of the panels)
      for panel, tile of rows
        sums = rows x weights                               `sums_function`
        outputs = epilogue(sums)

How many rows there are may be known to the call alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from math import prod

from tvm import tirx
from tvm.ir import Var
from tvm.tirx import ForKind

from backends.cpu.costs import FMA_PER_CYCLE, REGION_CYCLES
from backends.cpu.kernels.matmul_nbits.digits_function import DigitsFunction
from backends.cpu.kernels.matmul_nbits.packing import pack_operand
from backends.cpu.kernels.matmul_nbits.plan import NBitsPlan, plan_of
from backends.cpu.kernels.matmul_nbits.read import NBitsProduct, read_nbits
from backends.cpu.kernels.matmul_nbits.sums_function import WEIGHTS
from backends.cpu.kernels.shared.epilogue import Epilogue, RegisterRows
from backends.cpu.kernels.shared.open_split import ceil_div
from backends.cpu.machine import Machine
from backends.tensorir.accesses import unravel
from backends.tensorir.emit import Expr, Nest, int64, pieces, ramp
from backends.tensorir.extents import Extent, most
from backends.tensorir.result import Repack, Scheduled
from partition.access import MATMUL_NBITS

_CHUNK_ROWS = 64
"""Rows of a task at most, not measured: L2 of 2 MiB keeps the digits of 10,000 numbers each, of three bytes, while the
panels pass."""


def emit_nbits(func: tirx.PrimFunc, parts: NBitsProduct, machine: Machine, point: NBitsPlan) -> Scheduled:
    """Return the loops, and how the weights are to be packed."""
    loops = _Loops.of(parts, point)
    body = loops.emit()
    params = [loops.packed.get(param, param) for param in func.params]
    made = tirx.PrimFunc(params, body, func.ret_type, attrs=func.attrs)
    places = tuple(place for place, param in enumerate(func.params) if param in loops.packed)
    repack = Repack(places, partial(pack_operand, width=point.width))
    return Scheduled(made, MATMUL_NBITS, str(point), repack=repack)


def emit_open_nbits(func: tirx.PrimFunc, machine: Machine, threads: int) -> Scheduled:
    """Return the loops for any number of rows.

    Raises:
        Declined: It is no such product.
    """
    parts = read_nbits(func)
    return emit_nbits(func, parts, machine, plan_of(parts, machine, threads))


@dataclass(frozen=True)
class _Loops:
    """The loops of a product, whose constants are `packed`."""

    parts: NBitsProduct
    plan: NBitsPlan
    packed: Mapping[Var, Var]

    @staticmethod
    def of(parts: NBitsProduct, plan: NBitsPlan) -> _Loops:
        panels, blocks, width = -(-parts.channels // plan.width), parts.blocks, plan.width
        shape = panels, blocks, parts.block // WEIGHTS, width, WEIGHTS // 2
        packed = {
            parts.weights: tirx.decl_buffer(shape, "uint8", "weights"),
            parts.scales: tirx.decl_buffer((panels, blocks, width), plan.function.scale, "scales"),
        }
        if parts.zeros is not None:
            dtype = "int8" if str(parts.zeros.ty.dtype) == "uint8" else "float32"
            packed[parts.zeros] = tirx.decl_buffer((panels, blocks, width), dtype, "zeros")
        return _Loops(parts, plan, packed)

    @property
    def rows(self) -> Extent:
        return prod(self.parts.lead)

    @property
    def panels(self) -> int:
        return -(-self.parts.channels // self.plan.width)

    @property
    def pitch(self) -> int:
        """int32 between the digits of two rows."""
        return self.parts.blocks * self.plan.function.layout.size(self.parts.block)

    def emit(self) -> tirx.Stmt:
        """Return them."""
        nest, layout = Nest(), self.plan.function.layout
        to_digits = DigitsFunction(layout)
        nest.call_functions(to_digits.llvm_ir)
        nest.call_functions(self.plan.function.llvm_ir)
        digits = nest.allocate("digits", (most(self.rows, 1) * self.pitch,), "int32")
        rows = nest.keep("rows", int64(self.rows))
        if self.plan.threads == 1:
            self._all(nest, to_digits, digits, rows, ForKind.SERIAL)
        else:
            at_a_time = 4 * self.plan.function.lanes * FMA_PER_CYCLE
            cycles = rows * (self.parts.channels * self.parts.depth * layout.digits) // at_a_time
            nest.choose(
                cycles < 2 * REGION_CYCLES,
                lambda: self._all(nest, to_digits, digits, rows, ForKind.SERIAL),
                lambda: self._all(nest, to_digits, digits, rows, ForKind.PARALLEL),
            )
        return nest.finish()

    def _all(self, nest: Nest, to_digits: DigitsFunction, digits: Var, rows: Expr, kind: ForKind) -> None:
        parts, layout = self.parts, self.plan.function.layout
        in_block = parts.block // layout.part

        def write(row: Expr) -> None:
            first = tirx.BufferLoad(parts.rows, [*unravel(row, parts.lead), int64(0)])
            result = tirx.BufferLoad(digits, [row * self.pitch])
            nest.add(to_digits.call(parts.depth, parts.blocks, in_block, first, result))

        def write_all(kind: ForKind) -> None:
            with nest.loop("row", rows, kind) as row:
                write(row)

        if kind is ForKind.SERIAL:
            write_all(kind)
        else:
            nest.choose(rows > 1, lambda: write_all(kind), lambda: write_all(ForKind.SERIAL))
        shares = min(self.panels, self.plan.threads)
        chunks = nest.keep("chunks", ceil_div(rows, _CHUNK_ROWS))
        with nest.loop("task", chunks * shares, kind) as task:
            chunk, share = tirx.floordiv(task, int64(shares)), tirx.floormod(task, int64(shares))
            first = nest.keep("first_row", tirx.floordiv(chunk * rows, chunks))
            end = nest.keep("end_row", tirx.floordiv((chunk + 1) * rows, chunks))
            begin = nest.keep("first_panel", tirx.floordiv(share * self.panels, int64(shares)))
            last = nest.keep("end_panel", tirx.floordiv((share + 1) * self.panels, int64(shares)))
            self._task(nest, digits, (first, end), (begin, last))

    def _task(self, nest: Nest, digits: Var, rows: tuple[Expr, Expr], panels: tuple[Expr, Expr]) -> None:
        """Add the loops of a task over rows and panels, of each the first and where they end."""
        parts, function = self.parts, self.plan.function
        tallest, width = function.tallest, self.plan.width
        sums = nest.allocate("sums", (tallest * width,))
        epilogue = Epilogue.prepare(nest, parts.outputs, width)
        tiles = nest.keep("tiles", ceil_div(rows[1] - rows[0], tallest))
        in_block = parts.block // function.layout.part
        zero = int64(0)
        with nest.loop("panel", panels[1] - panels[0]) as at, nest.loop("tile", tiles) as tile:
            panel = nest.keep("panel", panels[0] + at)
            many = rows[1] - rows[0]
            first = nest.keep("first", rows[0] + tirx.floordiv(tile * many, tiles))
            height = nest.keep("height", rows[0] + tirx.floordiv((tile + 1) * many, tiles) - first)
            operands = [tirx.BufferLoad(digits, [first * self.pitch])]
            operands += [
                tirx.BufferLoad(buffer, [panel, *[zero] * (len(buffer.ty.shape) - 1)])
                for buffer in self.packed.values()
            ]
            operands.append(tirx.BufferLoad(sums, [zero]))
            nest.add(function.call((height, parts.blocks, in_block, self.pitch), operands))
            self._store(nest, epilogue, sums, panel, (first, height))

    def _store(self, nest: Nest, epilogue: Epilogue, sums: Var, panel: Expr, rows: tuple[Expr, Expr]) -> None:
        """Add what is behind the sums of a tile."""
        width, lanes, rest = self.plan.width, self.plan.function.lanes, self.parts.channels % self.plan.width

        def store(columns: int) -> None:
            with nest.loop("row", rows[1]) as i:
                which = unravel(rows[0] + i, self.parts.lead)
                for at, count in pieces(columns, lanes):
                    registers = RegisterRows(nest, 1, [(0, count)])
                    registers.write(0, 0, tirx.BufferLoad(sums, [ramp(i * width + at, count)]))

                    def place(i: Expr, j: Expr, channel: Expr, at: int = at) -> list[Expr]:
                        return [*which, panel * width + at + channel]

                    epilogue.store(nest, registers, (1, 1), [(0, count)], place)

        if not rest:
            store(width)
        elif self.panels == 1:
            store(rest)
        else:
            nest.choose(panel < self.panels - 1, lambda: store(width), lambda: store(rest))
