"""Matmuls that share their left operand as one kernel, of which only a call knows how many rows it has.

The loops are those of `emit`, over the row form of the kernel; how many rows a task has is cut at the call.
"""

from __future__ import annotations

from tvm import tirx

from backends.cpu.kernels.matmul.emit import RowMaker
from backends.cpu.kernels.matmul.plan import block_rows, products_extents
from backends.cpu.kernels.matmul.read import read_row_products
from backends.cpu.kernels.shared.open_contraction import OpenBlocking, emit_open
from backends.cpu.kernels.shared.open_products import has_function
from backends.cpu.kernels.shared.row_product import rows_times
from backends.cpu.machine import Machine
from backends.tensorir.emit import Expr, Nest
from backends.tensorir.result import Scheduled
from backends.tensorir.roles import find_anchors, operands_of
from backends.tensorir.row_form import RowForm
from partition.access import MATMUL

_BLOCK_ROWS = 16
"""Of what products make at a time: of fewer rows than a block, each is made by itself."""


def emit_open_products(func: tirx.PrimFunc, machine: Machine, threads: int) -> Scheduled:
    """Return the loops for any number of rows.

    Raises:
        Declined: It has another form.
    """
    form = RowForm.of(func, _lead_of(func))
    parts = read_row_products(form.func)
    works = [rows_times(parts.rows, p.packed, p.channels, p.outputs, machine) for p in parts.products]
    products = [work.extents for work in works]
    calls = has_function(works) and (parts.makes_rows or not form.lies_apart(parts.rows))
    blocking = OpenBlocking.of(products, products_extents(parts, machine), machine, threads, fill=calls)
    # TVM allocates where nothing is known but the symbols.
    block = min(block_rows(parts, machine), _BLOCK_ROWS) if parts.makes_rows else 1
    maker = RowMaker(parts, machine, blocking.longest_task(form.rows), block, is_least=False)
    nest = Nest()
    for buffer in parts.held:
        nest.add(tirx.AllocBuffer(form.views[buffer].buffer))
    emit_open(
        nest, works, blocking, form.rows, maker.fill if parts.makes_rows else None, alike=parts.alike,
        calls=calls,
    )  # fmt: skip
    return Scheduled(func.with_body(form.restore(nest.finish())), MATMUL, str(blocking))


def _lead_of(func: tirx.PrimFunc) -> list[Expr]:
    """Return the shape of the rows: the leading axes of the last product's left operand."""
    rows, *_ = operands_of(find_anchors(func)[-1])
    return list(rows.ty.shape)[:-1]
