"""Reads a kernel of elementwise stages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from tvm import tirx
from tvm.ir import TensorLoad, Var
from tvm_ffi.structural import StructuralMutator

from backends.cuda.kernels.device_arithmetic import NARROW, in_float32
from backends.cuda.kernels.registers import uses_any
from backends.tensorir.stages import Axis, Stage, dtype_of, loads, output_buffers, read_stages, shape_of, substitute
from fusion.declined import Declined
from fusion.structural import mutate

_DTYPES = NARROW | {"float32", "float64", "bool", "int8", "uint8", "int16", "int32", "int64"}


@dataclass(frozen=True)
class ElementwiseRegion:
    """Stages of which each element is computed alone.

    Attributes:
        axes: Of the outputs, all of which have them.
        outputs: The stages that are stored, over these axes.
        stages: All stages, by what they make.
        order: The places of the axes in the order in which elements are counted, outermost first: another one where
            outputs lie transposed to what they are made of.
        is_in_order: Whether what a kernel has computed is known to be read where outputs are written.
    """

    axes: tuple[Axis, ...]
    outputs: tuple[Stage, ...]
    stages: Mapping[Var, Stage]
    order: tuple[int, ...]
    is_in_order: bool = False

    @property
    def is_permuted(self) -> bool:
        """Whether elements are counted in another order than they are stored."""
        return self.order != tuple(range(len(self.axes)))

    @property
    def innermost(self) -> int:
        """Extent of the axis whose elements are counted one after another."""
        extents = [int(self.axes[place].extent) for place in self.order]
        return next((extent for extent in reversed(extents) if extent != 1), 1)

    @property
    def elements(self) -> int:
        """Of each output."""
        return prod(int(axis.extent) for axis in self.axes)

    def read(self) -> set[Var]:
        """Return all that the outputs are made of."""
        return self._read_by(lambda stage: {load.source for load in loads(stage.value)})

    def read_beside(self) -> set[Var]:
        """Return what neighbours of the outputs read, or compute, beside each other; not integers that say for all of
        them alike where another tensor is read, as of which row."""
        return self._read_by(_read_beside)

    def _read_by(self, read_of: Callable[[Stage], set[Var]]) -> set[Var]:
        """Return what the outputs and the stages that they read are told to read."""
        found, waiting = set[Var](), list(self.outputs)
        while waiting:
            read = read_of(waiting.pop()) - found
            found |= read
            waiting += [self.stages[buffer] for buffer in read if buffer in self.stages]
        return found


def _read_beside(stage: Stage) -> set[Var]:
    """Return what a stage reads, of indices of others only those that differ between neighbours."""
    inner = [axis.var for axis in stage.spatial if axis.extent != 1][-1:]
    found = set[Var]()

    def read(load: TensorLoad, mutator: StructuralMutator) -> TensorLoad:
        found.add(load.source)
        found.update(each.source for index in load.indices for each in loads(index) if uses_any(each.indices, inner))
        return load

    mutate(stage.value, [(TensorLoad, read)])
    return found


def read_pointwise(func: tirx.PrimFunc) -> ElementwiseRegion:
    """Return the stages of `func`.

    Raises:
        Declined: A stage is a reduction or writes a slice, outputs differ in their shapes, a shape is empty, or numbers
            are of a type that no kernel here computes in.
    """
    stages = read_stages(func)
    return elementwise_region(stages, output_buffers(func, stages))


def elementwise_region(
    stages: Sequence[Stage], outputs: Collection[Var], elsewhere: Collection[Var] = ()
) -> ElementwiseRegion:
    """Return these stages, of which `outputs` are stored; those that other loops store, `elsewhere`, are as narrow as
    in memory.

    Raises:
        Declined: See `read_pointwise`.
    """
    if any(stage.combine is not None for stage in stages):
        raise Declined("a stage is a reduction")
    if any(stage.offsets for stage in stages):
        raise Declined("a stage writes a slice")
    read = {load.source for stage in stages for load in loads(stage.value)}
    others = {dtype_of(buffer) for buffer in read | {stage.buffer for stage in stages}} - _DTYPES
    if others:
        raise Declined(f"it computes in {', '.join(sorted(others))}")
    wide = in_float32(stages, {*outputs, *elsewhere})
    written = [stage for stage in wide if stage.buffer in outputs]
    if len({shape_of(stage.buffer) for stage in written}) != 1:
        raise Declined("the outputs have several shapes")
    if 0 in shape_of(written[0].buffer):
        raise Declined("the outputs are empty")
    axes = written[0].spatial
    moved = tuple(_over(stage, axes) for stage in written)
    return ElementwiseRegion(axes, moved, {stage.buffer: stage for stage in wide}, tuple(range(len(axes))))


def _over(stage: Stage, axes: tuple[Axis, ...]) -> Stage:
    """Return a stage over the axes of another of the same shape."""
    known = {mine.var: axis.var for mine, axis in zip(stage.spatial, axes, strict=True)}
    return replace(stage, spatial=axes, value=substitute(stage.value, known))
