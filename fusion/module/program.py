"""Programs: arrays in, arrays out. `KernelProgram` runs compiled kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from backends.subgraphs import who_returned
from fusion.carried_errors import take_raised
from fusion.errors import ExecutionError, FusionError
from fusion.library import LoadedLibrary
from fusion.module import (
    host_functions,  # noqa: F401 - registers what compiled code calls
    share_cpus,
)
from fusion.module.arenas import Arenas
from fusion.module.input_slot import InputSlot, to_array
from fusion.module.plan import KernelCall, OutputPlan, RunPlan, allocate_buffers
from fusion.module.result_memory import ResultMemory
from fusion.runtime import Tensor
from fusion.signature import TensorSpec
from fusion.system.memory import check_run
from fusion.tensors import as_numpy, needs_carrier, tensor_bytes
from fusion.threads import on_live_pool

_CPU = 1
"""DLPack's number of the CPU."""
_POOLED_ALLOCATOR = 2
"""TVM's number of the pooled allocator, which reuses the memory of small outputs for later ones of the same size."""


class Program(Protocol):
    """A model that is ready to run."""

    def run(self, arrays: Sequence[Any]) -> tuple[np.ndarray, ...]:
        """Return the outputs for `arrays`, one for each input, in order. Several threads may call it at a time.

        Raises:
            InputError: An array does not fit its input.
            ExecutionError: The run failed.
        """
        ...


class RunMemory(Protocol):
    """The memory that one call has to itself while it runs."""

    def at(self, arrays: Sequence[np.ndarray]) -> Arena:
        """Return the arena for a run with these inputs.

        Raises:
            InputError: There is none for their shapes.
        """
        ...


@dataclass(frozen=True, eq=False)
class Arena:
    """The memory of one run.

    Attributes:
        slots: A slot for each input, to which its array is bound.
        buffers: The activations of the plan.
        constants: The arguments of `main` after the inputs: weights, then buffers.
        given: Each returns memory for a result, which come after these.
    """

    slots: tuple[InputSlot, ...]
    buffers: tuple[Tensor, ...]
    constants: tuple[Tensor, ...]
    given: tuple[Callable[[], Tensor], ...]

    def at(self, arrays: Sequence[np.ndarray]) -> Arena:
        """See `RunMemory`."""
        return self


class KernelProgram:
    """Runs compiled kernels through the Relax virtual machine."""

    allocator = _POOLED_ALLOCATOR

    def __init__(
        self,
        library: LoadedLibrary,
        plan: RunPlan,
        weights: tuple[Tensor, ...],
        inputs: tuple[TensorSpec, ...],
        threads: int,
        subgraphs: tuple[object, ...] = (),
    ) -> None:
        """`subgraphs` are the registered subgraphs that compiled code calls by key; they live as long as the
        program."""
        self.library = library
        self.plan = plan
        self.weights = weights
        self.inputs = inputs
        self.results = ResultMemory()
        self.arenas = Arenas(self._make_memory)
        self.threads = threads
        self.subgraphs = subgraphs
        # As tvm.runtime.vm.VirtualMachine does, without importing the rest of TVM.
        self._machine = library.functions["vm_load_executable"]()
        self._machine["vm_initialization"](_CPU, 0, self.allocator)
        self._main: Callable[..., Any] = self._machine["main"]
        self._readers = tuple(_reader(output) for output in plan.outputs)

    def run(self, arrays: Sequence[Any]) -> tuple[np.ndarray, ...]:
        """See `Program.run`."""
        return self._run(arrays) if self.library.pooled else on_live_pool(self._run, arrays)

    def _run(self, values: Sequence[Any]) -> tuple[np.ndarray, ...]:
        # Before an arena is taken: converting a value of the user's may call this module.
        arrays = list(map(to_array, values, self.inputs))
        arena = self.arenas.take()
        try:
            share = share_cpus.enter()
            # TVM creates its pools anew for another number of threads.
            alone = not share or not self.library.pooled
            self.library.use_threads(self.threads if alone else min(share, self.threads))
            return self.run_in(arena, arrays)
        finally:
            share_cpus.leave()
            self.arenas.give(arena)

    def run_in(self, memory: RunMemory, arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
        """Run in `memory`, which the caller has taken, and return the outputs."""
        arena = memory.at(arrays)
        # A strict zip takes 0.5 us, as long as the shortest kernels; `CompiledModule` has checked the number of arrays.
        tensors = list(map(InputSlot.bind, arena.slots, arrays))
        given = [take() for take in arena.given]
        try:
            result = self._main(*tensors, *arena.constants, *given)
        except Exception as error:  # TVM raises RuntimeError, ValueError, its own classes and what fallbacks raise
            raise _as_raised(error) from error
        fields = [result] if isinstance(result, Tensor) else result
        return tuple([read(field) for read, field in zip(self._readers, fields)])  # noqa: B905 -- as above

    def calls(self, arrays: Sequence[np.ndarray]) -> tuple[KernelCall, ...]:
        """Return the calls of kernels in a run with these inputs."""
        return self.plan.calls

    def _make_memory(self) -> RunMemory:
        inputs = sum(tensor_bytes(spec.extents, spec.dtype) for spec in self.inputs)
        results = sum(tensor_bytes(each.shape, each.dtype) for each in self.plan.results)
        check_run(inputs, sum(self.plan.storages), results)
        slots = tuple(InputSlot(spec, spec.extents) for spec in self.inputs)
        buffers = allocate_buffers(self.plan)
        return Arena(slots, buffers, (*self.weights, *buffers), tuple(map(self.results.giver, self.plan.given)))


def _as_raised(error: Exception) -> FusionError:
    """Return the FusionError that a function called by compiled code raised, or an ExecutionError."""
    raised, why = take_raised(), str(error).strip()
    if raised is not None:
        return raised
    if library := who_returned(why):
        return ExecutionError(
            f"the backend {library!r} returned another shape, dtype or count of results than its part has",
            why=why,
            hint=f"compile the model without {library!r}, or update that; the model may declare a wrong shape, too",
        )
    return ExecutionError(
        "the compiled model failed while it ran",
        why=why,
        hint="give other inputs; report it if ONNX Runtime runs the model with these",
    )


def _reader(output: OutputPlan) -> Callable[[Tensor], np.ndarray]:
    """Return the function that turns an output tensor into an array that the caller may keep."""
    if not output.owned:
        # It may share memory with an input, a weight or another output, and would change under the caller's hands.
        return lambda tensor: as_numpy(tensor).copy()
    # NumPy's own function: asking each tensor for its dtype, as `as_numpy` does, takes 1 us.
    return as_numpy if needs_carrier(output.dtype) else np.from_dlpack
