"""A lowered network as what can be run in parts: the memory that its kernels take, and their calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fusion.tensors import byte_view, tensor_bytes
from tuning.experiment import Storage, View

if TYPE_CHECKING:
    from fusion.module.plan import Argument, Plan
    from fusion.runtime import Tensor

_ALIGNMENT = 64
_FILLER = 0x3A
"""Of weights that are not made: four of these bytes are a small float32, two a small bfloat16; zeros would all lie in
one page."""


@dataclass(frozen=True)
class Network:
    """A model whose kernels have loops.

    Attributes:
        plan: Its memory and calls.
        weights: As the kernels take them.
        inputs: Arrays to run it on.
    """

    plan: Plan
    weights: Sequence[Tensor]
    inputs: Sequence[np.ndarray]


@dataclass
class Memory:
    """The storages and tensors of an experiment, as they are found to be needed."""

    network: Network
    storages: list[Storage] = field(default_factory=list)
    tensors: list[View] = field(default_factory=list)
    _contents: list[tuple[int, np.ndarray]] = field(default_factory=list)
    _end: int = 0
    _storage_of: dict[tuple[str, int], int] = field(default_factory=dict)
    _tensor_of: dict[Argument, int] = field(default_factory=dict)
    _unmade: dict[tuple[Argument, tuple[int, ...]], int] = field(default_factory=dict)

    def tensor(self, argument: Argument) -> int:
        """Return the tensor that a call of the network gets as `argument`."""
        if argument not in self._tensor_of:
            self._tensor_of[argument] = self._view(self._storage(argument), argument.shape, argument.dtype)
        return self._tensor_of[argument]

    def unmade(self, argument: Argument, shape: tuple[int, ...], dtype: str) -> int:
        """Return a tensor of this shape instead of `argument`, with values that do not matter."""
        key = argument, shape
        if key not in self._unmade:
            self.storages.append(Storage(tensor_bytes(shape, dtype), filler=_FILLER))
            self._unmade[key] = self._view(len(self.storages) - 1, shape, dtype)
        return self._unmade[key]

    def write(self, path: Path) -> None:
        """Write the contents of the storages that have any."""
        with path.open("wb") as file:
            for start, content in self._contents:
                file.seek(start)
                file.write(content.data)
            file.truncate(max(self._end, 1))

    def _view(self, storage: int, shape: tuple[int, ...], dtype: str) -> int:
        self.tensors.append(View(storage, shape, dtype))
        return len(self.tensors) - 1

    def _storage(self, argument: Argument) -> int:
        kind, index = argument.kind, argument.index
        if kind == "buffer":
            index = self.network.plan.buffers[index].storage
        if (kind, index) not in self._storage_of:
            self.storages.append(self._made(kind, index, argument))
            self._storage_of[kind, index] = len(self.storages) - 1
        return self._storage_of[kind, index]

    def _made(self, kind: str, index: int, argument: Argument) -> Storage:
        if kind == "buffer":
            return Storage(self.network.plan.storages[index])
        if kind == "fresh":
            return Storage(tensor_bytes(argument.shape, argument.dtype))
        content = self._content(kind, index)
        start = -(-self._end // _ALIGNMENT) * _ALIGNMENT
        self._end = start + content.size
        self._contents.append((start, content))
        return Storage(content.size, start)

    def _content(self, kind: str, index: int) -> np.ndarray[Any, Any]:
        if kind == "weight":
            return byte_view(self.network.weights[index])
        return np.ascontiguousarray(self.network.inputs[index]).reshape(-1).view(np.uint8)
