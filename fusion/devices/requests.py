"""A request on its way through stages: each is handed to the thread of its device when all that it reads is there."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from fusion.devices.device_thread import DeviceThread, Job, Priority
from fusion.errors import ExecutionError, FusionError
from fusion.module.plan import RunPlan
from fusion.runtime import Tensor

Submit = Callable[[DeviceThread, Priority, Job], None]


class StageProgram(Protocol):
    """Runs a part of the model on a device.

    Attributes:
        weights, plan: What it keeps there.
    """

    @property
    def weights(self) -> tuple[Tensor, ...]: ...
    @property
    def plan(self) -> RunPlan: ...

    def run(self, values: Sequence[np.ndarray], threads: int) -> tuple[np.ndarray, ...]:
        """Return what the part makes of `values`, in the thread of the device; raises FusionErrors."""
        ...


@dataclass(frozen=True, eq=False)
class DeviceStage:
    """A part of the model on a device.

    Attributes:
        program: What runs it.
        reads, writes: Places of its tensors among the values of a request.
        after: Positions of the stages that it reads of.
        before: Positions of the stages that read of it.
        kept: Bytes of a request that its device keeps: inputs of the model that it reads, and what it makes.
    """

    thread: DeviceThread
    program: StageProgram
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    after: tuple[int, ...]
    before: tuple[int, ...]
    kept: int

    def run(self, values: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
        """Return what the stage makes of `values`, on as many threads as its device has CPUs."""
        return self.program.run(values, self.thread.device.threads)


@dataclass(frozen=True, eq=False)
class Flow:
    """Stages that make up a model.

    Attributes:
        stages: Each behind those that it reads of.
        constants: Values of every request: weights that the model returns.
        inputs: Places of the inputs.
        results: Places of the results.
        readers: How many stages read each place; results have one more, who takes them.
        seconds: Between two requests that it takes.
    """

    stages: tuple[DeviceStage, ...]
    constants: Mapping[int, np.ndarray]
    inputs: tuple[int, ...]
    results: tuple[int, ...]
    readers: tuple[int, ...]
    seconds: float

    @cached_property
    def threads(self) -> tuple[DeviceThread, ...]:
        """The threads of its devices."""
        return tuple(dict.fromkeys(stage.thread for stage in self.stages))

    @cached_property
    def is_whole(self) -> bool:
        """Whether it is one stage that takes the inputs and returns the results, as if the model were not divided."""
        stage = self.stages[0] if len(self.stages) == 1 else None
        return stage is not None and (stage.reads, stage.writes) == (self.inputs, self.results)

    def run_whole(self, arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
        """Return the results of its one stage, in the calling thread, which has borrowed the device.

        Raises:
            FusionError: The stage failed; the error names it and its device.
        """
        (stage,) = self.stages
        try:
            with stage.thread.bound():
                return stage.run(arrays)
        except Exception as error:
            raise named_error(error, 0, self) from error


class Request:
    """One run of a model.

    Attributes:
        flow: What it runs through; None until it begins.
        answer: The results, or why there are none.
    """

    def __init__(self, number: int, arrays: Sequence[np.ndarray], submit: Submit = DeviceThread.submit) -> None:
        """Of requests under way, devices prefer that with the least number. `submit` hands a stage to its device."""
        self.answer: Future[tuple[np.ndarray, ...]] = Future()
        self.flow: Flow | None = None
        self._number, self._arrays = number, arrays
        self._submit_to = submit
        self._lock = threading.Lock()

    def begin(self, flow: Flow) -> Request:
        """Begin the run through `flow`, and return this request."""
        self.flow = flow
        self._values: dict[int, np.ndarray] = {**flow.constants, **dict(zip(flow.inputs, self._arrays, strict=True))}
        del self._arrays  # a stage frees the inputs when the last has read them
        self._readers = list(flow.readers)
        self._waits = [len(stage.after) for stage in flow.stages]
        self._left = len(flow.stages)
        if not self._left:
            self._finish(flow)
        for index, stage in enumerate(flow.stages):
            if not stage.after:
                self._submit(flow, index)
        return self

    def cancel(self) -> None:
        """Begin no more stages."""
        self.answer.cancel()

    def _submit(self, flow: Flow, index: int) -> None:
        stage = flow.stages[index]
        self._submit_to(stage.thread, (self._number, index), lambda failure: self._run(flow, index, failure))

    def _run(self, flow: Flow, index: int, failure: FusionError | None) -> None:
        if self.answer.done():
            return
        stage = flow.stages[index]
        try:
            if failure is not None:
                raise copy.copy(failure)  # each raise adds to the traceback of what it raises
            self._note(flow, stage, stage.run([self._values[place] for place in stage.reads]))
        except BaseException as error:  # whatever it is, nobody may wait for this request
            self.fail(named_error(error, index, flow))
            if isinstance(error, KeyboardInterrupt):  # it is the caller's own thread
                raise

    def _note(self, flow: Flow, stage: DeviceStage, made: Sequence[np.ndarray]) -> None:
        """Take what a stage made, free what nobody reads any more, and begin what only waited for this."""
        if self.answer.done():
            return
        with self._lock:
            self._values.update(zip(stage.writes, made, strict=True))
            for place in stage.reads:
                self._readers[place] -= 1
                if not self._readers[place]:
                    del self._values[place]
            for follower in stage.before:
                self._waits[follower] -= 1
            ready = [follower for follower in stage.before if not self._waits[follower]]
            self._left -= 1
            is_done = not self._left
        for follower in ready:
            self._submit(flow, follower)
        if is_done:
            self._finish(flow)

    def _finish(self, flow: Flow) -> None:
        """Give the results, each an array of the caller's own."""
        results, given = list[np.ndarray](), set[int]()
        for place in flow.results:
            value = self._values[place]
            own = place not in given and place not in flow.inputs and place not in flow.constants
            results.append(value if own else np.array(value))
            given.add(place)
        self._values.clear()
        if self.answer.set_running_or_notify_cancel():
            self.answer.set_result(tuple(results))

    def fail(self, error: FusionError) -> None:
        """Give an error in the place of the results, if there are none yet."""
        with self._lock:
            if not self.answer.done() and self.answer.set_running_or_notify_cancel():
                self.answer.set_exception(error)


def named_error(error: BaseException, index: int, flow: Flow) -> FusionError:
    """Return `error` as one that says where it came from, of its own class where that is ours."""
    where = f"stage {index + 1} of {len(flow.stages)}, on the device {flow.stages[index].thread.device.name}"
    if isinstance(error, FusionError):
        places = ", ".join(part for part in (error.where, where) if part)
        named = type(error)(error.what, where=places, why=error.why, hint=error.hint)
    else:
        named = ExecutionError("a stage failed while it ran", where=where, why=f"{type(error).__name__}: {error}")
    named.__cause__ = error
    return named
