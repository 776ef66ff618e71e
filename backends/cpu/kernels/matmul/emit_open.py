"""Matmuls that share their left operand as one kernel, of which only a call knows how many rows it has.

The loops are those of `emit`, over the row form of the kernel; how many rows a task has is cut at the call.
"""

from __future__ import annotations

from tvm import tirx

from backends.cpu.kernels.matmul.emit import RowMaker
from backends.cpu.kernels.matmul.open_layers import Fills, OpenLayers
from backends.cpu.kernels.matmul.plan import block_rows, products_extents
from backends.cpu.kernels.matmul.read import RowProducts, read_row_products
from backends.cpu.kernels.shared.contraction import Contraction
from backends.cpu.kernels.shared.open_contraction import OpenBlocking, emit_open, panels_of_layer
from backends.cpu.kernels.shared.open_products import SumsByFunction, has_function, lies_in_rows
from backends.cpu.kernels.shared.row_product import rows_times
from backends.cpu.machine import Machine
from backends.tensorir.emit import Expr, Nest, int64
from backends.tensorir.result import Scheduled
from backends.tensorir.roles import operands_of
from backends.tensorir.row_form import RowForm
from partition.access import MATMUL, find_anchors

_BLOCK_ROWS = 16
"""Of what is made at a time without the function of `tile_sums`: of fewer rows than a block, each is made by itself."""


def emit_open_products(func: tirx.PrimFunc, machine: Machine, threads: int) -> Scheduled:
    """Return the loops for any number of rows.

    Raises:
        Declined: It has another form.
    """
    form = RowForm.of(func, _lead_of(func))
    parts = read_row_products(form.func)
    works = _works(parts, machine)
    products = [work.extents for work in works]
    calls = has_function(works) and (parts.makes_rows or not form.lies_apart(parts.rows))
    blocking = OpenBlocking.of(products, products_extents(parts, machine), machine, threads, fill=calls)
    # TVM allocates where nothing is known but the symbols.
    producer = _producer(parts, form, machine, blocking.longest_task(form.rows)) if parts.makes_rows else None
    nest = Nest()
    for buffer in parts.held:
        nest.add(tirx.AllocBuffer(form.views[buffer].buffer))
    fetches = all(lies_in_rows(work) and not form.lies_apart(work.outputs[0].buffer) for work in works)
    emit_open(
        nest, works, blocking, form.rows, producer.fill if producer else None, alike=parts.alike,
        calls=SumsByFunction(fetches) if calls else None,
    )  # fmt: skip
    return Scheduled(func.with_body(form.restore(nest.finish())), MATMUL, str(blocking), is_written_out=True)


def _producer(parts: RowProducts, form: RowForm, machine: Machine, longest: Expr) -> Fills:
    """Return what makes the rows of `parts`, of which a task has `longest` at most."""
    layer = parts.first
    works = () if layer is None else tuple(_works(layer, machine))
    if layer is None or not has_function(works) or (form.lies_apart(layer.rows) and not layer.makes_rows):
        return RowMaker(parts, machine, longest, min(block_rows(parts, machine), _BLOCK_ROWS), is_least=False)
    panels = panels_of_layer([work.extents for work in works], machine)
    before = _producer(layer, form, machine, int64(OpenLayers.block_of(panels))) if layer.makes_rows else None
    return OpenLayers(parts, machine, works, panels, before, longest=longest)


def _works(parts: RowProducts, machine: Machine) -> list[Contraction]:
    return [rows_times(parts.rows, p.packed, p.channels, p.outputs, machine) for p in parts.products]


def _lead_of(func: tirx.PrimFunc) -> list[Expr]:
    """Return the shape of the rows: the leading axes of the last product's left operand."""
    rows, *_ = operands_of(find_anchors(func)[-1])
    return list(rows.ty.shape)[:-1]
