"""Runs the kernels of a model at any sizes of its open dimensions, in memory that grows with the largest."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod

import numpy as np

from fusion.errors import InputError
from fusion.extents import Sizes
from fusion.library import LoadedLibrary
from fusion.module.input_slot import InputSlot
from fusion.module.open_plan import OpenRunPlan
from fusion.module.plan import KernelCall, RunPlan, place_buffers
from fusion.module.program import Arena, KernelProgram, RunMemory
from fusion.runtime import Tensor
from fusion.signature import TensorSpec
from fusion.system.memory import check_run
from fusion.tensors import ALIGNMENT, allocate, as_tensor, tensor_bytes

_KEPT = 64
"""Sizes of which an arena keeps the tensors: making them takes about 1 us each."""
_MADE_BYTES = 4 << 20
"""So much the constants that are made for these may take, or as much as the activations: masks of a text have the
square of its length."""
_NAIVE_ALLOCATOR = 1
"""TVM's number of the allocator that gives memory of outputs back to the system's."""


class OpenProgram(KernelProgram):
    """Runs compiled kernels at the sizes that the inputs of a call have."""

    # The pool of the other keeps memory for each size that an output ever had.
    allocator = _NAIVE_ALLOCATOR

    def __init__(
        self,
        library: LoadedLibrary,
        plan: OpenRunPlan,
        weights: tuple[Tensor, ...],
        inputs: tuple[TensorSpec, ...],
        threads: int,
    ) -> None:
        """`inputs` have the dimensions that are open."""
        self.open_plan = plan
        super().__init__(library, plan.typical, weights, inputs=inputs, threads=threads)

    def calls(self, arrays: Sequence[np.ndarray]) -> tuple[KernelCall, ...]:
        """See `KernelProgram.calls`."""
        sizes = self.open_plan.sizes([array.shape for array in arrays])
        return () if sizes is None else self.open_plan.calls_at(self.open_plan.dims.all_sizes(sizes))

    def _make_memory(self) -> RunMemory:
        return OpenArena(self)


@dataclass(frozen=True, eq=False)
class _Frame:
    """The tensors of some sizes, and the bytes of the constants that were made for these."""

    arena: Arena
    made_bytes: int


class OpenArena:
    """What a run writes to: one piece of memory, and the tensors in it for the sizes that were seen last."""

    def __init__(self, program: OpenProgram) -> None:
        self._program = program
        self._memory = np.zeros(0, np.uint8)
        self._largest: dict[int, np.ndarray] = {}
        self._frames: OrderedDict[tuple[tuple[int, ...], ...], _Frame] = OrderedDict()

    def at(self, arrays: Sequence[np.ndarray]) -> Arena:
        """See `RunMemory`.

        Raises:
            InputError: As there.
            LimitError: There is no memory for a run with these shapes.
        """
        shapes = tuple([array.shape for array in arrays])
        frame = self._frames.get(shapes)
        if frame is None:
            frame = self._frames[shapes] = self._make(shapes)
            while len(self._frames) > 1 and self._are_too_many():
                self._frames.popitem(last=False)
        else:
            self._frames.move_to_end(shapes)
        return frame.arena

    def _are_too_many(self) -> bool:
        made = sum(frame.made_bytes for frame in self._frames.values())
        return len(self._frames) > _KEPT or made > max(len(self._memory), _MADE_BYTES)

    def _make(self, shapes: tuple[tuple[int, ...], ...]) -> _Frame:
        program, opened = self._program, self._program.open_plan
        sizes = opened.sizes(shapes)
        if sizes is None:
            raise InputError(
                f"the module has no compiled form for the input shapes {', '.join(map(str, shapes))}",
                why="they changed while the call began",
            )
        sizes = opened.dims.all_sizes(sizes)
        plan = opened.at(sizes)
        inputs = list(zip(program.inputs, shapes, strict=True))
        read = sum(tensor_bytes(shape, spec.dtype) for spec, shape in inputs)
        check_run(read, sum(plan.storages), opened.result_bytes(sizes))
        slots = tuple(InputSlot(spec, shape, of_many=True) for spec, shape in inputs)
        values = [self._weight(place, sizes) for place in range(len(opened.weights))]
        buffers = self._buffers(plan)
        given = tuple(map(program.results.giver, plan.given))
        arena = Arena(slots, buffers, (*map(as_tensor, values), *program.weights, *buffers), given)
        shared = [*self._largest.values(), *(weight.table for weight in opened.weights)]
        made = [value for value in values if not any(np.may_share_memory(value, each) for each in shared)]
        return _Frame(arena, sum(value.nbytes for value in made))

    def _weight(self, place: int, sizes: Sizes) -> np.ndarray:
        """Return what an open weight is at these sizes: the beginning of the largest one seen, where it can be. The
        masks of a Swin of 32 images are 134 MB, and those of all smaller batches would be 2 GB more."""
        weight = self._program.open_plan.weights[place]
        if not weight.is_prefix:
            return weight.at(sizes)
        shape = tuple(extent.at(sizes) for extent in weight.shape)
        if place not in self._largest or self._largest[place].size < prod(shape):
            self._frames.clear()  # the tensors that are smaller ones
            self._largest[place] = weight.at(sizes)
        return self._largest[place].reshape(-1)[: prod(shape)].reshape(shape)

    def _buffers(self, plan: RunPlan) -> tuple[Tensor, ...]:
        """Return the activations of `plan`, in memory that grows if they do not fit it."""
        starts = list(accumulate((-(-size // ALIGNMENT) * ALIGNMENT for size in plan.storages), initial=0))
        if starts[-1] > len(self._memory):
            self._frames.clear()  # the tensors that lie in the old memory
            self._memory = np.zeros(0, np.uint8)
            self._memory = allocate(starts[-1])
        return place_buffers(plan, [self._memory[start:] for start in starts[:-1]])
