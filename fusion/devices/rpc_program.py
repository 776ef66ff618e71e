"""What runs the part of a model on a server of TVM RPC: code and weights are sent once, activations with each run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from fusion.devices.rpc_session import SETUP_S, RpcSession
from fusion.module.plan import RunPlan
from fusion.report.profile import median_of
from fusion.runtime import Tensor
from fusion.signature import TensorSpec
from fusion.tensors import aligned_copy, allocate_tensor, as_numpy, tensor_bytes

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
        expected_s: float,
    ) -> None:
        """Send all that runs need, which are expected to take so long on the server.

        Raises:
            DeviceLostError: The server is gone.
            ExecutionError: It has no memory for it, or cannot load the code.
        """
        self.weights, self.plan = weights, plan
        self._session, self._outputs, self._expected_s = session, outputs, expected_s
        load = partial(self._load, library, inputs)
        buffers = session.call(load, session.link.seconds(len(library)), patience_s=SETUP_S, frees=True)
        there = [session.call(partial(weight.copyto, session.device), self._copying(weight)) for weight in weights]
        self._constants = (*there, *buffers)

    def _load(self, library: bytes, inputs: tuple[TensorSpec, ...]) -> list[Tensor]:
        """Load the code, and return the buffers of a run there."""
        session = self._session
        self._code = session.load(library)
        self._machine = self._code["vm_load_executable"]()
        self._machine["vm_initialization"](_CPU, 0, _POOLED_ALLOCATOR)
        storages, self._inputs = list[Tensor](), list[Tensor]()
        for size in self.plan.storages:
            storages.append(session.empty((size,), "uint8"))
        for spec in inputs:
            self._inputs.append(session.empty(spec.extents, spec.dtype))
        self._main, self._set = self._machine["main"], self._machine["set_input"]
        self._invoke, self._get = self._machine["invoke_stateful"], self._machine["get_output"]
        # Views of the beginning of each storage, as `place_buffers` makes them here.
        return [storages[each.storage]._create_view(each.shape, each.dtype) for each in self.plan.buffers]

    def run(self, values: Sequence[np.ndarray], threads: int) -> tuple[np.ndarray, ...]:
        """See `StageProgram`.

        Raises:
            DeviceLostError: The server is gone, or did not answer in time.
            ExecutionError: The run failed there.
        """
        session = self._session
        for there, value in zip(self._inputs, values, strict=True):
            session.call(partial(aligned_copy(value).copyto, there), self._copying(there))
        made = session.call(self._compute, self._expected_s)
        results = tuple(map(self._fetch, made, self._outputs))
        session.call(made.clear, frees=True)
        return results

    def _copying(self, tensor: Tensor) -> float:
        """Return the seconds that a copy of a tensor is expected to take."""
        return self._session.link.seconds(tensor_bytes(tuple(map(int, tensor.shape)), str(tensor.dtype)))

    def _compute(self) -> list[Tensor]:
        """Return what a run makes of the inputs that are there.

        A server returns no tuples, and none of its inputs as a tensor; by `set_input` it does, which copies weights.
        """
        if [output.owned for output in self.plan.outputs] == [True]:
            return [self._main(*self._inputs, *self._constants)]
        self._set("main", *self._inputs, *self._constants)
        self._invoke("main")
        several, made = len(self._outputs) > 1, list[Tensor]()
        for index in range(len(self._outputs)):  # no comprehension: what ends one frees what it has, and waits for that
            made.append(self._get("main", *([index] if several else [])))
        return made

    def _fetch(self, there: Tensor, spec: TensorSpec) -> np.ndarray:
        here = allocate_tensor(spec.extents, spec.dtype)
        self._session.call(partial(there.copyto, here), self._copying(here))
        return as_numpy(here)

    def seconds(self, values: Sequence[np.ndarray]) -> float:
        """Return what a run takes, with its copies."""
        self.run(values, 1)
        return median_of(lambda: self.run(values, 1), _SECONDS)
