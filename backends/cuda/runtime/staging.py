"""Pinned memory, by which arrays of the host come to the device and back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from backends.cuda.runtime.device import OpenDevice
from backends.cuda.runtime.kernels import aligned
from backends.cuda.runtime.layout import ALIGNMENT
from backends.cuda.runtime.resources import DeviceEvent, PinnedMemory
from backends.device_run import DeviceRun
from fusion.tensors import numpy_dtype, tensor_bytes


class Staging:
    """Pinned memory that the arrays of one call go through, on their way to the device and back.

    Attributes:
        ready: Behind the copies of a run.
    """

    def __init__(self, device: OpenDevice, run: DeviceRun, inputs: Sequence[tuple[tuple[int, ...], str]]) -> None:
        outputs = [(output.shape, output.dtype) for output in run.outputs]
        sizes = [tensor_bytes(shape, dtype) for shape, dtype in (*inputs, *outputs)]
        ends = np.cumsum([aligned(size, ALIGNMENT) for size in sizes]).tolist()
        self._pinned = PinnedMemory(device, ends[-1] if ends else 0)
        starts = [0, *ends][: len(ends)]
        self._arrays = [
            self._pinned.array[start : start + size].view(numpy_dtype(dtype)).reshape(shape)
            for start, size, (shape, dtype) in zip(starts, sizes, (*inputs, *outputs), strict=True)
        ]
        self._inputs = len(inputs)
        self.ready = DeviceEvent(device)

    def fill(self, values: Sequence[np.ndarray]) -> None:
        """Take the arrays of a call."""
        for number, value in enumerate(values):
            self.fill_one(number, value)

    def fill_one(self, number: int, value: np.ndarray) -> None:
        """Take one of them."""
        np.copyto(self._arrays[number], value)

    def input(self, number: int) -> np.ndarray:
        """Return an input here."""
        return self._arrays[number]

    def output(self, number: int) -> np.ndarray:
        """Return the place of an output here."""
        return self._arrays[self._inputs + number]
