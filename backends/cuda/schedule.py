"""Gives a kernel its loops: those of the first template that takes it, or a library in their place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tvm import tirx

from backends.cuda.devices import CudaDevice
from backends.cuda.kernels import attention, checks, lines, matmul, pointwise, recurrent, reductions, rows, transposes
from backends.cuda.kernels.launch import check_sizes
from backends.cuda.kernels.template import CudaTemplate, ScheduleContext
from backends.cuda.libraries.cublaslt.template import TEMPLATE as CUBLASLT
from backends.cuda.libraries.cudnn.template import TEMPLATE as CUDNN
from backends.cuda.without_elements import starts_nothing, without_elements
from backends.kernel import UNSCHEDULED
from backends.tensorir.result import Scheduled
from backends.tensorir.roles import anchor_of
from fusion.declined import Declined
from fusion.failures import cause
from partition.access import computed_blocks
from partition.recurrence import recurrence_of

TEMPLATES: tuple[CudaTemplate, ...] = (
    attention.TEMPLATE, matmul.TEMPLATE, rows.TEMPLATE, transposes.TEMPLATE, pointwise.TEMPLATE, reductions.TEMPLATE,
    checks.TEMPLATE, lines.TEMPLATE, recurrent.TEMPLATE,
)  # fmt: skip
"""In the order in which they are asked."""
LIBRARIES: tuple[CudaTemplate, ...] = (CUBLASLT, CUDNN)
"""Those that give kernels to libraries where they are named, and estimated to be no slower than loops. Of several that
take a kernel it is the one that is named first: their estimates are the same."""


def schedule(
    func: tirx.PrimFunc, device: CudaDevice, *, tfloat32: bool = False, libraries: tuple[str, ...] = ()
) -> Scheduled:
    """Return the loops of one kernel; without any, and with the reason of the template that is for such kernels, where
    none takes it.

    A template that fails is one that declines, as on a CPU. Libraries are named before our kernels, and have what is
    estimated to take as long there; of a product that all of them decline the reasons are told. None is asked where a
    parameter has more elements than an int32 counts, which the indices of all kernels are.

    Args:
        tfloat32: Whether products of float32 round their operands to tfloat32.
        libraries: Names of those that may run kernels in place of loops.
    """
    try:
        check_sizes(*func.params)
    except Declined as reason:
        return Scheduled(func, UNSCHEDULED, "", str(reason), is_last_resort=True)
    ctx, func = ScheduleContext(device, tfloat32, libraries), without_elements(func)
    if starts_nothing(func):
        return Scheduled(func, "empty", "no launch")
    own = _first(TEMPLATES, func, ctx)
    named = tuple(template for name in libraries for template in LIBRARIES if template.name == name)
    given = _first(named, func, ctx)
    if given.template == UNSCHEDULED:
        return replace(own, note=given.note) if own.template == matmul.TEMPLATE.name else own
    if own.template == UNSCHEDULED or not own.cycles or given.cycles <= own.cycles:
        return given
    slower = f"{given.template} declined: it is estimated to take {given.cycles / own.cycles:.2f} times as long"
    return replace(own, note=slower)


def _first(templates: Sequence[CudaTemplate], func: tirx.PrimFunc, ctx: ScheduleContext) -> Scheduled:
    """Return the loops of the first template that takes a kernel; none where none does, and then the reason of the one
    that is for such kernels, or of all where it is not asked, and what failed."""
    refusals, failures = dict[str, str](), list[str]()
    for template in templates:
        try:
            return template.schedule(func, ctx)
        except Declined as reason:
            refusals[template.name] = f"{template.name} declined: {reason}"
        except MemoryError:
            raise
        except Exception as failure:  # TVM raises whatever its checks raise
            failures.append(f"{template.name} failed: {cause(failure)}")
    nearest = refusals.get(_nearest(func).name) if len(refusals) > 1 else None
    told = [nearest] if nearest is not None else refusals.values()
    return Scheduled(func, UNSCHEDULED, "", "; ".join([*told, *failures]), is_last_resort=True)


def _nearest(func: tirx.PrimFunc) -> CudaTemplate:
    """Return the template that is for kernels such as this: recurrences, products, other reductions, or what is
    elementwise."""
    if recurrence_of(func) is not None:
        return recurrent.TEMPLATE
    blocks = computed_blocks(func)
    if any(anchor_of(block) for block in blocks):
        return matmul.TEMPLATE
    axes = (axis for block in blocks for axis in block.iter_vars)
    reduces = any(axis.iter_type == tirx.IterVar.CommReduce for axis in axes)
    return reductions.TEMPLATE if reduces else pointwise.TEMPLATE
