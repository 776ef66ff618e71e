"""Names, shapes and dtypes of what goes into a model and comes out.

A leaf: running a saved module needs nothing of TVM's compiler, and so nothing that imports it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fusion.errors import Declared, ShapeError, unknown_input, unknown_shape


@dataclass(frozen=True)
class TensorSpec:
    """Name, shape and dtype of a model input or output.

    A dimension that is unknown before the run is None; so is the whole shape where not even the rank is known. The
    dtype is numpy's name of it; values that are no tensors have ONNX's name of their type: "seq(tensor(float))".

    Attributes:
        axes: The model's names of the dimensions, "" where one has none; none at all where the model has no such names.
    """

    name: str
    shape: tuple[int | None, ...] | None
    dtype: str
    axes: tuple[str, ...] = field(default=(), compare=False)

    @property
    def is_tensor(self) -> bool:
        """Whether the value is a tensor, and no sequence or optional."""
        return "(" not in self.dtype

    @property
    def is_static(self) -> bool:
        """Whether nothing about the value is left to be known at run time that code would be compiled for."""
        return not self.is_tensor or (self.shape is not None and None not in self.shape)

    @property
    def extents(self) -> tuple[int, ...]:
        """The shape of an input of a compiled program, where every dimension is known."""
        extents = tuple(extent for extent in self.shape or () if extent is not None)
        if self.shape is None or len(extents) != len(self.shape):
            raise AssertionError(f"input {self.name!r} of a compiled program has unknown dimensions")
        return extents

    def allows(self, shape: Sequence[int | str | None]) -> bool:
        """Return whether `shape` has the sizes that are known, and as many dimensions."""
        return self.shape is None or (
            len(self.shape) == len(shape)
            and all(known in (None, extent) for known, extent in zip(self.shape, shape, strict=True))
        )

    def misfit(self, shape: Sequence[int | None]) -> str:
        """Return why `shape`, which is not allowed, is not: it has another rank, or another size that is known."""
        rank = len(self.shape or ())
        if rank != len(shape):
            return f"it has {rank} dimensions, {self.sizes}, and {len(shape)} are given"
        pairs = enumerate(zip(self.shape or (), shape, strict=True))
        wrong = [f"dimension {axis} is {known}, not {extent}" for axis, (known, extent) in pairs
                 if known not in (None, extent)]  # fmt: skip
        return f"it is {self.sizes}: {'; '.join(wrong)}"

    @property
    def declared(self) -> Declared:
        """The shape with the model's names of the sizes that are unknown."""
        if self.shape is None:
            return None
        names = self.axes or ("",) * len(self.shape)
        return [name or None if size is None else size for size, name in zip(self.shape, names, strict=True)]

    @property
    def sizes(self) -> tuple[int | str, ...]:
        """The shape as errors show it: "?" for a size that is unknown."""
        return tuple("?" if extent is None else extent for extent in self.shape or ())


def require_static(inputs: Sequence[TensorSpec], why: str = "") -> None:
    """Raise if the shape of an input is open, with a hint for all that are.

    Raises:
        ShapeError: It is, and `why` more than that the model leaves it so.
    """
    declared = {spec.name: spec.declared for spec in inputs if not spec.is_static}
    for name in declared:
        raise unknown_shape(name, declared[name], why, declared)


def name_dims(
    inputs: Sequence[TensorSpec], shapes: Mapping[str, Sequence[int | str]]
) -> tuple[tuple[TensorSpec, ...], dict[str, tuple[int, ...]]]:
    """Return `inputs` with the names that `shapes` gives to their open dimensions, and the shapes of numbers alone.

    Raises:
        ShapeError: The model fixes a dimension that has a name, or has another size for one that has none, or has no
            such input.
    """
    names = [spec.name for spec in inputs]
    for name in shapes:
        if name not in names:
            raise unknown_input(name, names)
    numbers = {name: shape for name, shape in shapes.items() if not any(isinstance(extent, str) for extent in shape)}
    named = tuple(
        _named(spec, shapes[spec.name]) if spec.name in shapes and spec.name not in numbers else spec for spec in inputs
    )
    return named, {name: tuple(int(extent) for extent in shape) for name, shape in numbers.items()}


def _named(spec: TensorSpec, dims: Sequence[int | str]) -> TensorSpec:
    if not spec.allows(dims):
        raise ShapeError(
            f"shapes={{{spec.name!r}: {tuple(dims)}}} contradicts the model",
            where=f"input {spec.name!r}",
            why=f"the model declares {spec.sizes}",
            hint="only dimensions shown as ? can have names or sizes",
        )
    sizes = tuple(None if isinstance(dim, str) else dim for dim in dims)
    return TensorSpec(spec.name, sizes, spec.dtype, tuple(dim if isinstance(dim, str) else "" for dim in dims))


def complete_shapes(inputs: Sequence[TensorSpec], shapes: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
    """Return `shapes`, and those of inputs whose open dimensions all have names that `shapes` gives one size."""
    sizes: dict[str, set[int]] = defaultdict(set)
    for spec in inputs:
        for axis, extent in zip(spec.axes, shapes.get(spec.name, ()), strict=False):
            sizes[axis].add(extent)
    named = {axis: extents.pop() for axis, extents in sizes.items() if axis and len(extents) == 1}
    completed = {name: tuple(shape) for name, shape in shapes.items()}
    for spec in inputs:
        if spec.name not in shapes and not spec.is_static and spec.declared is not None:
            known = [named.get(size) if isinstance(size, str) else size for size in spec.declared]
            extents = [extent for extent in known if extent is not None]
            if len(extents) == len(known):
                completed[spec.name] = tuple(extents)
    return completed


@dataclass(frozen=True)
class FallbackNode:
    """A node that runs on ONNX Runtime inside the module, and why."""

    op: str
    node: str
    reason: str
