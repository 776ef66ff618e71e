"""Gives a kernel its loops: those of the first template that takes it."""

from __future__ import annotations

from tvm import tirx

from backends.cuda.cublaslt.template import TEMPLATE as CUBLASLT
from backends.cuda.devices import CudaDevice
from backends.cuda.kernels import attention, checks, matmul, pointwise, reductions, rows, transposes
from backends.cuda.kernels.launch import check_sizes
from backends.cuda.kernels.template import CudaTemplate, ScheduleContext
from backends.kernel import UNSCHEDULED
from backends.tensorir.result import Scheduled
from fusion.declined import Declined
from fusion.failures import cause

TEMPLATES: tuple[CudaTemplate, ...] = (
    attention.TEMPLATE, matmul.TEMPLATE, rows.TEMPLATE, transposes.TEMPLATE, pointwise.TEMPLATE, reductions.TEMPLATE,
    checks.TEMPLATE,
)  # fmt: skip
"""In the order in which they are asked."""
LIBRARIES: tuple[CudaTemplate, ...] = (CUBLASLT,)
"""Those that give kernels to libraries, which are asked first where they are named."""


def schedule(
    func: tirx.PrimFunc, device: CudaDevice, *, tfloat32: bool = False, libraries: tuple[str, ...] = ()
) -> Scheduled:
    """Return the loops of one kernel; without any, and with the reasons of all templates, where none takes it.

    A template that fails is one that declines, as on a CPU. None is asked where a parameter has more elements than an
    int32 counts, which the indices of all kernels are.

    Args:
        tfloat32: Whether products of float32 round their operands to tfloat32.
        libraries: Names of those that may run kernels in place of loops.
    """
    try:
        check_sizes(*func.params)
    except Declined as reason:
        return Scheduled(func, UNSCHEDULED, "", str(reason), is_last_resort=True)
    ctx, refusals = ScheduleContext(device, tfloat32, libraries), []
    named = (template for template in LIBRARIES if template.name in libraries)
    for template in (*named, *TEMPLATES):
        try:
            return template.schedule(func, ctx)
        except Declined as reason:
            refusals.append(f"{template.name} declined: {reason}")
        except MemoryError:
            raise
        except Exception as failure:  # TVM raises whatever its checks raise
            refusals.append(f"{template.name} failed: {cause(failure)}")
    return Scheduled(func, UNSCHEDULED, "", "; ".join(refusals), is_last_resort=True)
