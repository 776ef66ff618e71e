"""What a family of kernels is to the rest of the backend: one object, its `TEMPLATE`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm import tirx

from backends.cuda.devices import CudaDevice
from backends.tensorir.result import Scheduled


@dataclass(frozen=True)
class ScheduleContext:
    """What kernels are made for.

    Attributes:
        tfloat32: Whether products of float32 round their operands to tfloat32.
        libraries: Names of those that may run kernels in place of loops.
    """

    device: CudaDevice
    tfloat32: bool = False
    libraries: tuple[str, ...] = ()


@dataclass(frozen=True)
class CudaTemplate:
    """A family of kernels.

    Attributes:
        name: In reports.
        schedule: Returns a kernel with loops bound to blocks and threads, at the point that is estimated to be fastest
            there. Raises `Declined` with the reason why it is none of the family's.
    """

    name: str
    schedule: Callable[[tirx.PrimFunc, ScheduleContext], Scheduled]
