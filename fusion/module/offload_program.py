"""Runs the kernels of a form on a device beside the CPU, by the plan of its calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from backends.device_run import DeviceExecutable, DevicePlace, DeviceRun, KernelStart, RunResult
from backends.registry import device_runtime
from fusion.module.input_slot import check_array, to_array
from fusion.module.plan import Argument, RunPlan
from fusion.module.settings import Settings
from fusion.module.specialization import Code
from fusion.signature import TensorSpec
from fusion.tensors import tensor_bytes

_KINDS = {"input": "input", "weight": "weight", "fresh": "result"}
"""Places of devices by kinds of the plan's arguments."""


class OffloadProgram:
    """A `Program`. Calls from several threads follow one another on the device.

    Attributes:
        inputs: One array each.
    """

    def __init__(self, executable: DeviceExecutable, inputs: tuple[TensorSpec, ...]) -> None:
        self.inputs, self._executable = inputs, executable

    def run(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        """See `Program.run`: NumPy's arrays where all of `arrays` are on the CPU; otherwise they stay on the device,
        and speak DLPack."""
        return self.run_on(arrays, None)

    def run_on(self, arrays: Sequence[Any], stream: Any) -> tuple[Any, ...]:
        """Return the outputs of a run in the order of a caller's stream; None for the module's own.

        Raises:
            InputError: An array does not fit its input, or is on another device.
            ExecutionError: The run, or one before it that nobody waited for, failed.
            OptionError: `stream` is none.
        """
        values = []
        for array, spec in zip(arrays, self.inputs, strict=True):
            there = self._executable.receive(array, spec, stream)
            value = to_array(array, spec) if there is None else there
            check_array(value, spec)
            values.append(value)
        return self._executable.run(values, stream)


def offload(
    code: Code, inputs: tuple[TensorSpec, ...], settings: Settings, ordinal: int | None = None
) -> OffloadProgram:
    """Return the program of a form's code on the device of this number, or the first that runs it.

    Raises:
        TargetError: There is none.
        LimitError: Its memory does not suffice.
        ValueError: The code is damaged.
    """
    runtime = device_runtime(settings.kind)
    run = device_run(code.plan, inputs)
    return OffloadProgram(runtime.load(code.library(), run, code.weights, ordinal), inputs)


def device_run(plan: RunPlan, inputs: tuple[TensorSpec, ...]) -> DeviceRun:
    """Return what a run by `plan` starts, of which the host does nothing in between."""
    arguments = [argument for call in plan.calls for argument in call.arguments]
    arguments += [output.place for output in plan.outputs if output.place is not None]
    fresh = [argument for argument in arguments if argument.kind == "fresh"]
    sizes = [0] * (1 + max((argument.index for argument in fresh), default=-1))
    for argument in fresh:
        sizes[argument.index] = max(sizes[argument.index], tensor_bytes(argument.shape, argument.dtype))
    return DeviceRun(
        inputs=inputs,
        storages=plan.storages,
        results=tuple(sizes),
        starts=tuple(
            KernelStart(call.kernel, tuple(_place(plan, each) for each in call.arguments)) for call in plan.calls
        ),
        outputs=tuple(
            RunResult(_place(plan, output.place), output.place.shape, output.dtype, _is_own(output.place, output.owned))
            for output in plan.outputs
            if output.place is not None
        ),
    )


def _is_own(place: Argument, owned: bool) -> bool:
    return owned and place.kind == "fresh"


def _place(plan: RunPlan, argument: Argument) -> DevicePlace:
    if argument.kind == "buffer":
        return DevicePlace("storage", plan.buffers[argument.index].storage)
    return DevicePlace(_KINDS[argument.kind], argument.index)
