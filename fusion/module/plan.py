"""The run-time plan of a compiled model: which memory it needs and which kernels it calls, as plain data.

It is made once when the module is built, is saved with it, and is all that `profile` needs to run kernels one by one.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fusion.runtime import Tensor
from fusion.tensors import allocate, as_tensor, numpy_dtype, tensor_bytes


@dataclass(frozen=True)
class TensorPlan:
    """A tensor at offset 0 of a storage; `storage` counts from 0."""

    storage: int
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Argument:
    """What a kernel is called with.

    Attributes:
        kind: "input", "weight" or "buffer" (`index` counts within the kind), or "fresh": memory that is known only
            when the model runs.
        index: Position within the kind; for "fresh", which of them.
        shape, dtype: Of the tensor.
    """

    kind: str
    index: int
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Condition:
    """What a branch is taken on: `tensor`, a bool of rank 0, is `value`.

    A buffer still holds it after the run; "fresh" is one that a fallback or another If returned.
    """

    tensor: Argument
    value: bool


@dataclass(frozen=True)
class KernelCall:
    """One call of a PrimFunc in `main`, made where all `conditions` hold."""

    kernel: str
    arguments: tuple[Argument, ...]
    conditions: tuple[Condition, ...]


@dataclass(frozen=True)
class OutputPlan:
    """An output of `main`.

    Attributes:
        dtype: TVM's name of it.
        owned: Whether it lies in memory of its own, so that the caller may keep it without a copy.
        place: Where it is after the run; None where only the run knows.
    """

    dtype: str
    owned: bool
    place: Argument | None = None


@dataclass(frozen=True)
class RunPlan:
    """Memory and calls of `main`.

    Attributes:
        storages: Size in bytes of each storage; activations that never live together share one.
        buffers: The activations, in the order in which `main` takes them after inputs and weights.
        given: The "fresh" memory that `main` takes after the buffers, for results; that of others it asks for itself.
        calls: Kernel calls in the order of execution; calls with a value that is not a tensor are left out.
        outputs: The outputs in order.
    """

    storages: tuple[int, ...]
    buffers: tuple[TensorPlan, ...]
    given: tuple[Argument, ...]
    calls: tuple[KernelCall, ...]
    outputs: tuple[OutputPlan, ...]

    @property
    def results(self) -> frozenset[Argument]:
        """The outputs that each run makes anew; those that only the run knows, as of branches, are left out."""
        return frozenset(each.place for each in self.outputs if each.place is not None and each.place.kind == "fresh")


def allocate_buffers(plan: RunPlan) -> tuple[Tensor, ...]:
    """Return the activations of `plan`, in memory that is allocated now and reused by every call.

    Raises:
        LimitError: There is no memory for them.
    """
    return place_buffers(plan, [allocate(size) for size in plan.storages])


def place_buffers(plan: RunPlan, storages: Sequence[np.ndarray]) -> tuple[Tensor, ...]:
    """Return the activations of `plan` at the beginnings of `storages`, which are bytes, as many as it says or more."""

    @functools.cache
    def place(buffer: TensorPlan) -> Tensor:
        used = storages[buffer.storage][: tensor_bytes(buffer.shape, buffer.dtype)]
        return as_tensor(used.view(numpy_dtype(buffer.dtype)).reshape(buffer.shape))

    return tuple(map(place, plan.buffers))  # alike layers have the same at the same place
