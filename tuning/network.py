"""A lowered network as what can be run in parts: the memory that its kernels take, and their calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fusion.tensors import byte_view, tensor_bytes
from tuning.experiment import Storage, View
from tuning.filled_tensors import FILLER

if TYPE_CHECKING:
    from fusion.module.plan import Argument, RunPlan
    from fusion.runtime import Tensor

_ALIGNMENT = 64


@dataclass(frozen=True)
class Network:
    """A model whose kernels have loops.

    Attributes:
        plan: Its memory and calls.
        weights: As the kernels take them.
        inputs: Arrays to run it on.
    """

    plan: RunPlan
    weights: Sequence[Tensor]
    inputs: Sequence[np.ndarray]


@dataclass(frozen=True)
class _Source:
    """What a storage holds: the input, weight, storage of the plan or fresh memory that `index` counts to."""

    kind: str
    index: int


@dataclass(frozen=True)
class _Content:
    """Bytes that the file of data has from `start` on."""

    start: int
    data: np.ndarray


@dataclass
class Memory:
    """The storages and tensors of an experiment, as they are found to be needed."""

    network: Network
    storages: list[Storage] = field(default_factory=list, init=False)
    tensors: list[View] = field(default_factory=list, init=False)
    _contents: list[_Content] = field(default_factory=list, init=False)
    _storage_of: dict[_Source, int] = field(default_factory=dict, init=False)
    _tensor_of: dict[Argument, int] = field(default_factory=dict, init=False)
    _placeholders: dict[Argument, int] = field(default_factory=dict, init=False)

    def tensor(self, argument: Argument) -> int:
        """Return the tensor that a call of the network gets as `argument`."""
        if argument not in self._tensor_of:
            self._tensor_of[argument] = self._view(self._storage(argument), argument.shape, argument.dtype)
        return self._tensor_of[argument]

    def placeholder(self, argument: Argument, shape: tuple[int, ...], dtype: str) -> int:
        """Return a tensor of this shape instead of `argument`, with values that do not matter."""
        wanted = replace(argument, shape=shape, dtype=dtype)
        if wanted not in self._placeholders:
            storage = self._add(Storage(tensor_bytes(shape, dtype), filler=FILLER))
            self._placeholders[wanted] = self._view(storage, shape, dtype)
        return self._placeholders[wanted]

    def write(self, path: Path) -> None:
        """Write the contents of the storages that have any."""
        with path.open("wb") as file:
            for content in self._contents:
                file.seek(content.start)
                file.write(content.data.data)
            file.truncate(max(self.size, 1))

    def _view(self, storage: int, shape: tuple[int, ...], dtype: str) -> int:
        self.tensors.append(View(storage, shape, dtype))
        return len(self.tensors) - 1

    def _storage(self, argument: Argument) -> int:
        source = _Source(argument.kind, argument.index)
        if source.kind == "buffer":  # several share a storage
            source = _Source(source.kind, self.network.plan.buffers[source.index].storage)
        if source not in self._storage_of:
            self._storage_of[source] = self._add(self._new_storage(source, argument))
        return self._storage_of[source]

    def _new_storage(self, source: _Source, argument: Argument) -> Storage:
        if source.kind == "buffer":
            return Storage(self.network.plan.storages[source.index])
        if source.kind == "fresh":
            return Storage(tensor_bytes(argument.shape, argument.dtype))
        content = _Content(-(-self.size // _ALIGNMENT) * _ALIGNMENT, self._data(source))
        self._contents.append(content)
        return Storage(content.data.size, content.start)

    def _data(self, source: _Source) -> np.ndarray[Any, Any]:
        """Return the bytes of a weight or an input."""
        if source.kind == "weight":
            return byte_view(self.network.weights[source.index])
        return np.ascontiguousarray(self.network.inputs[source.index]).reshape(-1).view(np.uint8)

    @property
    def size(self) -> int:
        """Bytes of the file of contents."""
        return self._contents[-1].start + self._contents[-1].data.size if self._contents else 0

    def _add(self, storage: Storage) -> int:
        self.storages.append(storage)
        return len(self.storages) - 1
