"""The kernels of a product: one, or two where blocks share the depth of a tile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from math import prod
from typing import Any

from tvm import tirx
from tvm.ir import Var
from tvm.sym import Analyzer

from backends.cuda.codegen.device_functions import address, call_device, registers
from backends.cuda.kernels.matmul.emit import emit_product
from backends.cuda.kernels.matmul.plan import Plan
from backends.cuda.kernels.matmul.stream import emit_stream
from backends.cuda.kernels.matmul.sums import SumsConsumer
from backends.cuda.kernels.pointwise.emit import compute_elements, emit_elements, widest_run
from backends.cuda.kernels.pointwise.read import ElementwiseRegion
from backends.cuda.kernels.registers import Lanes
from backends.tensorir.accesses import flat_index
from backends.tensorir.emit import Nest
from backends.tensorir.stages import Axis, Stage, shape_of
from fusion.declined import Declined

Expr = Any
PARTIAL = "partial"
"""The name of the parameter that has the sums of parts of tiles."""


def emit_matmul(func: tirx.PrimFunc, plan: Plan) -> tuple[tirx.PrimFunc, ...]:
    """Return `func`, of which `plan` has the product, as kernels that run one after another.

    Where several blocks have parts of a tile, they have one parameter more, `PARTIAL`, which the first writes and the
    second reads: the blocks' sums are added in a fixed order, so that results are the same each time.

    Raises:
        Declined: The point does not suit the product, or what is behind reads sums of another position.
    """
    why_not = plan.why_not()
    if why_not:
        raise Declined(why_not)
    product, point = plan.product, plan.point
    if point.split == 1:
        results = results_of(product.epilogue, product.sums, product.columns)
        if not point.stream_blocks:
            return (func.with_body(emit_product(plan, lambda split: results)),)
        kept_tiles = 2 * point.stream_blocks
        partial = tirx.decl_buffer((kept_tiles * point.rows * point.columns,), "float32", PARTIAL)
        return _kernels(func, partial, emit_stream(plan, partial, results))
    elements = prod(shape_of(product.sums))
    partial = tirx.decl_buffer((plan.point.split * elements,), "float32", PARTIAL)

    def kept(split: Expr) -> SumsConsumer:
        def keep(nest: Nest, begin: Expr, lanes: Lanes, sums: Var) -> None:
            place = address(partial, split * elements + begin)
            call_device(nest, f"put_floats<{lanes.many}>", place, *registers(sums, 0))

        return SumsConsumer(_divisor(4, product.columns), keep)

    return _kernels(func, partial, (emit_product(plan, kept), emit_elements(_added(plan, partial))))


def _kernels(func: tirx.PrimFunc, partial: Var, bodies: Sequence[tirx.Stmt]) -> tuple[tirx.PrimFunc, ...]:
    return tuple(tirx.PrimFunc([*func.params, partial], body, func.ret_type, func.attrs) for body in bodies)


def results_of(epilogue: ElementwiseRegion, sums: Var, columns: int) -> SumsConsumer:
    """Return what makes the outputs of sums, of which a row has so many."""

    def add(nest: Nest, begin: Expr, lanes: Lanes, taken: Var) -> None:
        compute_elements(nest, epilogue, begin, lanes, {sums: taken})

    many = _divisor(widest_run(epilogue, {sums}), columns)
    return SumsConsumer(_divisor(many, epilogue.innermost) if epilogue.is_permuted else many, add)


def _added(plan: Plan, partial: Var) -> ElementwiseRegion:
    """Return what is behind the product with one stage more, which adds the splits up."""
    sums, elements = plan.product.sums, prod(shape_of(plan.product.sums))
    axes = tuple(Axis(Var(f"s{at}", "int64"), extent) for at, extent in enumerate(shape_of(sums)))
    at = flat_index(shape_of(sums), [axis.var for axis in axes], Analyzer())
    parts = [tirx.BufferLoad(partial, [at + split * elements]) for split in range(plan.point.split)]
    stage = Stage(sums, axes, (), reduce(lambda first, second: first + second, parts))
    return replace(plan.product.epilogue, stages={**plan.product.epilogue.stages, sums: stage})


def _divisor(many: int, extent: int) -> int:
    """Return the largest power of two up to `many`, one itself, that divides an extent."""
    while extent % many:
        many //= 2
    return many
