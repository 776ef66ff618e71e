"""Names, shapes and dtypes of what goes into a model and comes out.

A leaf: running a saved module needs nothing of TVM's compiler, and so nothing that imports it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
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

    Inputs that `shapes` lacks have the sizes that it gives to the model's names of their dimensions in other inputs.

    Raises:
        ShapeError: The model fixes a dimension that has a name, or has another size for one that has none, or has no
            such input; or a name has two sizes, and there is a dimension of that name in an input without a shape.
    """
    names = [spec.name for spec in inputs]
    for name in shapes:
        if name not in names:
            raise unknown_input(name, names)
    numbers = {name: shape for name, shape in shapes.items() if not any(isinstance(extent, str) for extent in shape)}
    fixed = _fixed_like(inputs, shapes)
    named = tuple(
        _named(spec, shapes[spec.name]) if spec.name in shapes.keys() - numbers.keys() else spec for spec in fixed
    )
    sizes = {name: tuple(int(extent) for extent in shape) for name, shape in numbers.items()}
    followed = {new.name: new.extents for new, old in zip(named, inputs, strict=True)
                if new is not old and new.name not in shapes and new.is_static}  # fmt: skip
    return named, sizes | followed


def _fixed_like(inputs: Sequence[TensorSpec], shapes: Mapping[str, Sequence[int | str]]) -> tuple[TensorSpec, ...]:
    """Return `inputs`, those that `shapes` lacks with the sizes it gives to the names of their dimensions.

    Raises:
        ShapeError: It gives two to one of them.
    """
    sizes = [[size if isinstance(size, int) else None for size in shapes.get(spec.name, ())] for spec in inputs]
    wanted = {axis for spec in inputs if spec.name not in shapes for axis in spec.axes}
    contradiction = disagreement(inputs, sizes, wanted)
    if contradiction:
        raise ShapeError(
            "shapes= gives one dimension of the model two sizes",
            why=contradiction,
            hint="give it one size; where the model takes several, give every input its shape",
        )
    known = {axis: size for axis, size, _ in _sizes_of_names(inputs, sizes)}
    return tuple(
        spec if spec.name in shapes or not known.keys() & set(spec.axes) else _with_sizes(spec, known)
        for spec in inputs
    )


def _with_sizes(spec: TensorSpec, known: Mapping[str, int]) -> TensorSpec:
    dims = zip(spec.shape or (), spec.axes, strict=True)
    sizes = tuple(known.get(axis) if size is None else size for size, axis in dims)
    return TensorSpec(spec.name, sizes, spec.dtype, spec.axes)


def require_dims(inputs: Sequence[TensorSpec], bounds: Mapping[str, range]) -> None:
    """Raise unless each name in `bounds` is that of a dimension of `inputs` that the model leaves open, which has one
    of these sizes if it has one.

    Raises:
        ShapeError: One is not, or has another.
    """
    names = {axis for spec in inputs for axis in spec.axes if axis}
    for name in bounds.keys() - names:
        raise ShapeError(
            f"no open dimension has the name {name!r}",
            where=f"bounds[{name!r}]",
            why=f"the open dimensions are {', '.join(sorted(names))}" if names else "none has a name",
            hint="shapes= gives names to the dimensions that the model leaves open",
        )
    if why := beyond(inputs, [spec.shape or () for spec in inputs], bounds):
        raise ShapeError("a size is out of bounds", why=why, hint="give another size, or other bounds=")


def beyond(inputs: Sequence[TensorSpec], shapes: Sequence[Sequence[int | None]], bounds: Mapping[str, range]) -> str:
    """Return which dimension has a size that is not among its `bounds` where `inputs` have `shapes`; "" if none has."""
    for axis, size, where in _sizes_of_names(inputs, shapes):
        sizes = bounds.get(axis)
        if sizes is not None and size not in sizes:
            steps = f" in steps of {sizes.step}" if sizes.step > 1 else ""
            return f"dimension {axis!r} is {size} in {where}, and takes {sizes[0]} to {sizes[-1]}{steps}"
    return ""


def disagreement(
    inputs: Sequence[TensorSpec], shapes: Sequence[Sequence[int | None]], names: Collection[str] | None = None
) -> str:
    """Return which dimension has two sizes where `inputs` have `shapes`, and where it has them; "" if none has.

    Args:
        names: The names of dimensions that are looked at; None for all.
    """
    first: dict[str, tuple[int, str]] = {}
    for axis, size, where in _sizes_of_names(inputs, shapes):
        known, place = first.setdefault(axis, (size, where))
        if known != size and (names is None or axis in names):
            return f"dimension {axis!r} is {known} in {place} and {size} in {where}"
    return ""


def _sizes_of_names(
    inputs: Sequence[TensorSpec], shapes: Sequence[Sequence[int | None]]
) -> Iterator[tuple[str, int, str]]:
    """Yield each name of a dimension that has a size in `shapes`, with that and where it has it."""
    for spec, shape in zip(inputs, shapes, strict=True):
        for position, (axis, size) in enumerate(zip(spec.axes, shape, strict=False)):
            if axis and size is not None:
                yield axis, size, f"axis {position} of input {spec.name!r}"


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
    """A node that runs on ONNX Runtime inside the module, and why.

    Attributes:
        op: Its operator, as ONNX calls it.
        node: Its name, or else that of its first output.
        reason: Why it is not compiled.
        subgraph: The key of the subgraph that it is in; "" in files that were saved before they had it.
    """

    op: str
    node: str
    reason: str
    subgraph: str = ""
