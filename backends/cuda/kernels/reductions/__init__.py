"""Reductions that each thread does for neighbours of its own: pools, depthwise convolutions, sums over any axes."""

from __future__ import annotations

from tvm import tirx

from backends.cuda.devices import CudaDevice
from backends.cuda.kernels.reductions.emit import emit_reductions
from backends.cuda.kernels.template import CudaTemplate
from backends.tensorir.result import Scheduled

_NAME = "reductions"


def _schedule(func: tirx.PrimFunc, device: CudaDevice, tfloat32: bool) -> Scheduled:
    return Scheduled(emit_reductions(func, device), _NAME, "16 bytes a thread, 256 threads")


TEMPLATE = CudaTemplate(_NAME, _schedule)
