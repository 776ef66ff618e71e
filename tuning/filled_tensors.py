"""Tensors of an experiment whose values do not matter."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from tvm.ir import Var

from backends.tensorir.stages import dtype_of, shape_of
from fusion.tensors import tensor_bytes
from tuning.experiment import Storage, View

FILLER = 0x3A
"""Every byte of them: four of these bytes are a small float32, two a small bfloat16; zeros would all lie in one
page."""


@dataclass
class FilledTensors:
    """The storages and tensors of an experiment, as they are found to be needed."""

    storages: list[Storage] = field(default_factory=list, init=False)
    tensors: list[View] = field(default_factory=list, init=False)
    _known: dict[tuple[Hashable, tuple[int, ...]], int] = field(default_factory=dict, init=False)

    def tensor(self, owner: Hashable, parameter: Var) -> int:
        """Return the tensor for a parameter of a kernel with loops, the same one for each of this shape of an
        `owner`."""
        shape, dtype = shape_of(parameter), dtype_of(parameter)
        if (owner, shape) not in self._known:
            self.storages.append(Storage(tensor_bytes(shape, dtype), filler=FILLER))
            self.tensors.append(View(len(self.storages) - 1, shape, dtype))
            self._known[owner, shape] = len(self.tensors) - 1
        return self._known[owner, shape]
