"""Runs a module that was compiled for a CUDA device on the emulator: the kernels of its plan, one by one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from backends.cuda.codegen.device_code import DeviceKernels
from fusion import CompiledModule
from fusion.module.plan import Argument, RunPlan
from fusion.tensors import as_numpy, numpy_dtype
from tests.backends.cuda.emulator.emulate import Counts, emulate
from tests.backends.cuda.written_code import read_code


def run_planned(
    module: CompiledModule,
    *arrays: np.ndarray,
    orders: tuple[int, ...] = (3,),
    seen: Callable[[str, list[Counts]], None] = lambda kernel, counts: None,
) -> list[np.ndarray]:
    """Return the outputs; all that kernels write to begins as ones in each bit, which are NaN.

    Args:
        seen: Is told of each call what the accesses of its launches add up to.
    """
    (form,) = module.specializations
    code = form.code
    assert code is not None
    kernels = read_code(code.library())
    memory = _Memory(code.plan, arrays, [as_numpy(weight) for weight in code.weights])
    for call in code.plan.calls:
        held = [memory.view(argument) for argument in call.arguments]
        seen(call.kernel, run_kernels(kernels[call.kernel], held, orders))
    return [memory.view(output.place) for output in code.plan.outputs if output.place is not None]


class _Memory:
    """Inputs, weights, and what the plan has storages for; results are apart."""

    def __init__(self, plan: RunPlan, inputs: tuple[np.ndarray, ...], weights: list[np.ndarray]) -> None:
        self._plan, self._given = plan, {"input": inputs, "weight": weights}
        self._storages = [np.full(size, 0xFF, np.uint8) for size in plan.storages]
        self._fresh: dict[int, np.ndarray] = {}

    def view(self, argument: Argument) -> np.ndarray:
        dtype = numpy_dtype(argument.dtype)
        size = int(np.prod(argument.shape)) * dtype.itemsize
        if argument.kind == "buffer":
            held = self._storages[self._plan.buffers[argument.index].storage][:size]
        elif argument.kind == "fresh":
            held = self._fresh.setdefault(argument.index, np.full(size, 0xFF, np.uint8))
        else:
            return self._given[argument.kind][argument.index].reshape(argument.shape)
        return held.view(dtype).reshape(argument.shape)


def run_kernels(kernels: DeviceKernels, arguments: list[np.ndarray], orders: tuple[int, ...]) -> list[Counts]:
    """Start the kernels of one PrimFunc one after another, which leave what they make in `arguments`.

    Return what the accesses of each add up to.
    """
    assert len(arguments) == kernels.parameters
    values = [*arguments, *(np.full(size, 0xFF, np.uint8) for size in kernels.workspaces)]
    counts = []
    for launch in kernels.launches:
        held = [values[position] for position in launch.arguments]
        done = emulate(launch.kernel, dict(zip(launch.kernel.parameters, held, strict=True)), orders)
        for array, name, position in zip(held, launch.kernel.parameters, launch.arguments, strict=True):
            result = done.arrays[name]
            if array.tobytes() != result.tobytes():
                assert position in launch.writes, f"{launch.name} writes {name}, and its launch does not say so"
                array[...] = result
        counts.append(done.counts)
    return counts
