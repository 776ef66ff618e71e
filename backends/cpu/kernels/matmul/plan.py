"""How matmuls that share their left operand are cut, and whether one kernel beats several."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import tvm_ffi
from tvm.ir import Var

from backends.cpu.costs import L2_BYTES_PER_CYCLE, MEMORY_BYTES_PER_CYCLE, REGION_CYCLES
from backends.cpu.kernels.matmul.costs import LAYERS_MARGIN, ROW_BLOCK_CYCLES
from backends.cpu.kernels.matmul.read import RowProducts
from backends.cpu.kernels.shared.blocking import blocking_space
from backends.cpu.kernels.shared.contraction import Blocking
from backends.cpu.kernels.shared.extents import Extents, may_be_in_tiles
from backends.cpu.kernels.shared.register_tile import RegisterTile, RowSets, choose, total_cycles
from backends.cpu.kernels.shared.row_product import rows_times
from backends.cpu.kernels.shared.stitching.plan import has_turn, stitched_work
from backends.cpu.machine import Machine
from backends.tensorir.estimate import Estimate
from backends.tensorir.extents import typical
from backends.tensorir.rows import RowBlock
from backends.tensorir.space import Space
from backends.tensorir.stages import dims_of, dtype_of, loads, shape_of

_BLOCK_ROWS = 64
"""Of what products make at a time: four tiles of AVX-512."""


def products_space(parts: RowProducts, machine: Machine, threads: int) -> Space[Blocking]:
    """Return every blocking of the products side by side."""
    return blocking_space(products_extents(parts, machine), machine, threads)


def estimate(parts: RowProducts, machine: Machine, threads: int) -> Estimate:
    """Return what one kernel and several are estimated to take."""
    together = products_space(parts, machine, threads).default.cycles
    apart = sum(
        blocking_space(_product_extents(parts, place, machine), machine, threads).default.cycles
        for place in range(len(parts.products))
    )
    kernels = len(parts.products)
    if parts.before:
        work = stitched_work(parts.before, {parts.rows}, machine)
        made = work.space(threads).default
        apart += made.cycles + REGION_CYCLES + _source_bytes(parts) / min(threads, made.tasks) / MEMORY_BYTES_PER_CYCLE
        kernels += 1
    if parts.first is not None:
        first = estimate(parts.first, machine, threads)
        apart += min(first.weighed, first.apart)
        kernels += 1 if first.weighed < first.apart else first.kernels
    if parts.makes_rows:
        apart += _spilled_bytes(parts, machine, threads) / threads / MEMORY_BYTES_PER_CYCLE
    return Estimate(together, apart, kernels, 1.0 if parts.first is None else LAYERS_MARGIN)


def block_rows(parts: RowProducts, machine: Machine) -> int:
    """Return how many rows are best made at a time: some register tiles where products make them, a vector of rows
    where stages turn them, otherwise one."""
    if parts.first is not None:
        return min(_BLOCK_ROWS, parts.height)
    return machine.vector_lanes if _turns(parts, machine) else 1


def block_tile(extents: Extents, machine: Machine) -> RegisterTile:
    """Return the register tile of a product over a block of rows."""
    sets = RowSets.of(extents.row_pitch, machine)
    return choose(extents.height, 1, extents.vectors, extents.steps, machine.vector_registers, sets=sets)


def _turns(parts: RowProducts, machine: Machine) -> bool:
    """Return whether a stage before the products reads something along another axis than it writes."""
    if not parts.before or parts.height < machine.vector_lanes:
        return False
    stages, local = RowBlock(Var("first", "int64"), machine.vector_lanes, parts.height).restrict(parts.before)
    return has_turn(stages, {local[parts.rows]}, machine)


def products_extents(parts: RowProducts, machine: Machine) -> Extents:
    """Return the sizes of the products side by side."""
    each = [_product_extents(parts, place, machine) for place in range(len(parts.products))]
    channels = each[0].channels if parts.alike else machine.vector_lanes * sum(extents.vectors for extents in each)
    products = len(each) if parts.alike else 1
    cycles = _row_cycles(parts, machine)
    # Rows that are a result too are stored by the one task that makes them.
    return replace(each[0], channels=channels, row_cycles=cycles, products=products, whole_rows=parts.kept)


def _product_extents(parts: RowProducts, place: int, machine: Machine) -> Extents:
    product = parts.products[place]
    extents = rows_times(parts.rows, product.packed, product.channels, product.outputs, machine).extents
    return may_be_in_tiles(extents, machine)


def _row_cycles(parts: RowProducts, machine: Machine) -> float:
    """Return what making one row takes: its stages and the copy to where the products read it, or the products that
    make it, whose weights pass by once a block."""
    if parts.before:
        work = stitched_work(parts.before, {parts.rows}, machine)
        copied = parts.depth / machine.vector_lanes
        read = _source_bytes(parts) / parts.height / MEMORY_BYTES_PER_CYCLE
        return work.space(1).default.cycles / parts.height + read + copied + ROW_BLOCK_CYCLES
    if parts.first is None:
        return 0.0
    rows = block_rows(parts, machine)
    cycles = rows * _row_cycles(parts.first, machine)
    for place in range(len(parts.first.products)):
        extents = replace(_product_extents(parts.first, place, machine), height=rows)
        sets = RowSets.of(extents.row_pitch, machine)
        cycles += total_cycles(block_tile(extents, machine), rows, 1, extents.vectors, extents.steps, sets=sets)
        size = 4 * extents.vectors * extents.lanes * extents.depth
        cycles += size / (L2_BYTES_PER_CYCLE if size <= machine.l2_bytes // 2 else MEMORY_BYTES_PER_CYCLE)
    return cycles / rows


def _source_bytes(parts: RowProducts) -> int:
    """Return the size of what the rows are made of."""
    made = {stage.buffer for stage in parts.before}
    sources = {load.source for stage in parts.before for load in loads(stage.value)} - made
    return sum(prod(map(typical, dims_of(source))) * tvm_ffi.dtype(dtype_of(source)).itemsize for source in sources)


def _spilled_bytes(parts: RowProducts, machine: Machine, threads: int) -> int:
    """Return the bytes of rows that no L2 holds, which are written and read again."""
    size = 4 * prod(shape_of(parts.rows))
    return 2 * size if size / threads > machine.l2_bytes // 2 else 0
