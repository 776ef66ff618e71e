"""Where weights, activations, inputs and results of a module lie in its one allocation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from backends.cuda.runtime.kernels import LoadedKernels, aligned
from backends.device_run import DevicePlace, DeviceRun
from fusion.tensors import byte_view, tensor_bytes

ALIGNMENT = 256
"""Bytes between the beginnings of tensors, as the driver itself allocates."""


class MemoryLayout:
    """Where everything lies in the memory of a module, which is allocated at once.

    Attributes:
        offsets: Of each place, in bytes.
        size: Of all.
    """

    def __init__(
        self,
        run: DeviceRun,
        inputs: Sequence[tuple[tuple[int, ...], str]],
        weights: Sequence[Any],
        kernels: LoadedKernels,
    ) -> None:
        sizes = {
            **{DevicePlace("weight", number): byte_view(weight).nbytes for number, weight in enumerate(weights)},
            **{DevicePlace("storage", number): size for number, size in enumerate(run.storages)},
            **{DevicePlace("result", number): size for number, size in enumerate(run.results)},
            **{DevicePlace("input", number): tensor_bytes(*known) for number, known in enumerate(inputs)},
        }
        self.offsets, self.size = dict[DevicePlace, int](), 0
        for place, size in sizes.items():
            self.offsets[place] = self.size
            self.size += aligned(size, ALIGNMENT)
        self.offsets |= {place: self.size + held.start for place, held in kernels.workspaces.items()}
        self.size += kernels.workspace_bytes
