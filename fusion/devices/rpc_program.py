"""What runs the part of a model on a server of TVM RPC: code and weights are sent once, activations with each run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from functools import partial

import numpy as np

from fusion.devices.rpc_session import RpcSession
from fusion.module.plan import RunPlan
from fusion.report.profile import rounds_of
from fusion.runtime import Tensor
from fusion.signature import TensorSpec
from fusion.tensors import aligned_copy, allocate_tensor, as_numpy

_CPU = 1
_POOLED_ALLOCATOR = 2
_SECONDS = 1.0
"""For whole runs that are timed."""


class RpcProgram:
    """A `StageProgram` of kernels on a server, with one arena there."""

    def __init__(
        self,
        session: RpcSession,
        library: bytes,
        plan: RunPlan,
        weights: tuple[Tensor, ...],
        inputs: tuple[TensorSpec, ...],
        outputs: tuple[TensorSpec, ...],
    ) -> None:
        """Send all that runs need.

        Raises:
            DeviceLostError: The server is gone.
            ExecutionError: It has no memory for it, or cannot load the code.
        """
        self.weights, self.plan = weights, plan
        self._session, self._outputs = session, outputs
        session.call(partial(self._send, library, inputs))

    def _send(self, library: bytes, inputs: tuple[TensorSpec, ...]) -> None:
        session = self._session
        self._code = session.load(library)
        self._machine = self._code["vm_load_executable"]()
        self._machine["vm_initialization"](_CPU, 0, _POOLED_ALLOCATOR)
        there = [weight.copyto(session.device) for weight in self.weights]
        storages = [session.empty((size,), "uint8") for size in self.plan.storages]
        # Views of the beginning of each storage, as `place_buffers` makes them here.
        buffers = [storages[each.storage]._create_view(each.shape, each.dtype) for each in self.plan.buffers]
        self._constants = (*there, *buffers)
        self._inputs = [session.empty(spec.extents, spec.dtype) for spec in inputs]
        self._main, self._set, self._invoke, self._get = (
            self._machine[name] for name in ("main", "set_input", "invoke_stateful", "get_output")
        )

    def run(self, values: Sequence[np.ndarray], threads: int) -> tuple[np.ndarray, ...]:
        """See `StageProgram`.

        Raises:
            DeviceLostError: The server is gone, or did not answer in time.
            ExecutionError: The run failed there.
        """
        return self._session.call(lambda: self._run(values))

    def _run(self, values: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
        for there, value in zip(self._inputs, values, strict=True):
            aligned_copy(value).copyto(there)
        return tuple(map(self._fetch, self._compute(), self._outputs))

    def _compute(self) -> Sequence[Tensor]:
        """Return what a run makes of the inputs that are there.

        A server returns no tuples, and none of its inputs as a tensor; by `set_input` it does, which copies weights.
        """
        if [output.owned for output in self.plan.outputs] == [True]:
            return [self._main(*self._inputs, *self._constants)]
        self._set("main", *self._inputs, *self._constants)
        self._invoke("main")
        several = len(self._outputs) > 1
        return [self._get("main", *([index] if several else [])) for index in range(len(self._outputs))]

    def _fetch(self, there: Tensor, spec: TensorSpec) -> np.ndarray:
        here = allocate_tensor(spec.extents, spec.dtype)
        there.copyto(here)
        return as_numpy(here)

    def seconds(self, values: Sequence[np.ndarray]) -> float:
        """Return what a run takes, with its copies."""
        self.run(values, 1)
        rounds = rounds_of(lambda: [self._timed(values)], _SECONDS)
        return statistics.median(taken for (taken,) in rounds)

    def _timed(self, values: Sequence[np.ndarray]) -> float:
        started = time.perf_counter()
        self.run(values, 1)
        return time.perf_counter() - started
