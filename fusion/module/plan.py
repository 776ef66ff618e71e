"""The run-time plan of a compiled model: which memory it needs and which kernels it calls, as plain data.

It is made once when the module is built, is saved with it, and is all that `profile` needs to run kernels one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fusion.runtime import Tensor
from fusion.tensors import ALIGNMENT, as_tensor, numpy_dtype, tensor_bytes


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
        kind: "input", "weight" or "buffer" (`index` counts within the kind), or "fresh": memory that each call
            allocates.
        index: Position within the kind; for "fresh", which of them.
        shape, dtype: Of the tensor.
    """

    kind: str
    index: int
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class KernelCall:
    """One call of a PrimFunc in `main`."""

    kernel: str
    arguments: tuple[Argument, ...]


@dataclass(frozen=True)
class OutputPlan:
    """An output of `main`.

    Attributes:
        dtype: TVM's name of it.
        owned: Whether it lies in memory of its own, so that the caller may keep it without a copy.
    """

    dtype: str
    owned: bool


@dataclass(frozen=True)
class Plan:
    """Memory and calls of `main`.

    Attributes:
        storages: Size in bytes of each storage; activations that never live together share one.
        buffers: The activations, in the order in which `main` takes them after inputs and weights.
        calls: Kernel calls in the order of execution; calls inside a branch or with a value that is not a tensor are
            left out.
        outputs: The outputs in order.
    """

    storages: tuple[int, ...]
    buffers: tuple[TensorPlan, ...]
    calls: tuple[KernelCall, ...]
    outputs: tuple[OutputPlan, ...]


def allocate(size: int) -> np.ndarray:
    """Return `size` zero bytes, as uint8, at an address that is a multiple of `ALIGNMENT`."""
    raw = np.zeros(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size]


def allocate_tensor(shape: tuple[int, ...], dtype: str) -> Tensor:
    """Return an aligned tensor of zeros."""
    return as_tensor(allocate(tensor_bytes(shape, dtype)).view(numpy_dtype(dtype)).reshape(shape))


def allocate_buffers(plan: Plan) -> tuple[Tensor, ...]:
    """Return the activations of `plan`, in memory that is allocated now and reused by every call."""
    storages = [allocate(size) for size in plan.storages]
    return tuple(
        as_tensor(storages[b.storage][: tensor_bytes(b.shape, b.dtype)].view(numpy_dtype(b.dtype)).reshape(b.shape))
        for b in plan.buffers
    )
