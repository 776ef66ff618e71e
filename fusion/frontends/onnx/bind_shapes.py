"""Gives every input of a model the concrete shape the user asked for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import onnx
from onnx import TensorShapeProto, TypeProto

from fusion.errors import Declared, ShapeError, unknown_input, unknown_shape
from fusion.frontends.onnx.signature import name_of_dim, spec_of, true_inputs
from fusion.frontends.onnx.types import dim_of, dims_of

# Those that each name of a dimension is given.
_Sizes = Mapping[str, set[int]]


def bind_shapes(graph: onnx.GraphProto, shapes: Mapping[str, Sequence[int]]) -> dict[str, TypeProto]:
    """Return the type of each input of `graph`, all tensors static.

    A dimension that several inputs share by name is bound for all of them at once. Those that are given may differ in
    it, as ONNX Runtime lets them: what reads them may broadcast.

    Raises:
        ShapeError: `shapes` names no input, has the wrong rank, contradicts a dimension, or leaves one open.
    """
    inputs = {value.name: value for value in true_inputs(graph)}
    sizes: dict[str, set[int]] = defaultdict(set)
    for name, shape in shapes.items():
        if name not in inputs:
            raise unknown_input(name, sorted(inputs))
        _agree(inputs[name], tuple(int(dim) for dim in shape), sizes)
    needed = {
        name: spec_of(name, value.type).declared
        for name, value in inputs.items() if name not in shapes and _is_open(value, sizes)
    }  # fmt: skip
    return {name: _bound_type(value, shapes, sizes, needed) for name, value in inputs.items()}


def _is_open(value: onnx.ValueInfoProto, sizes: _Sizes) -> bool:
    """Return whether the sizes of `value` do not follow from those of other inputs."""
    if value.type.WhichOneof("value") != "tensor_type":
        return False
    declared = spec_of(value.name, value.type).declared
    names = () if declared is None else [size or "" for size in declared if not isinstance(size, int)]
    return declared is None or any(len(sizes.get(name, ())) != 1 for name in names)


def _agree(value: onnx.ValueInfoProto, shape: tuple[int, ...], sizes: dict[str, set[int]]) -> None:
    """Check `shape` against the declaration of `value` and note the sizes of its named dimensions in `sizes`."""
    where = f"shapes[{value.name!r}] = {shape}"
    if value.type.WhichOneof("value") != "tensor_type":
        raise ShapeError(f"input {value.name!r} is no tensor and takes no shape", where=where)
    declared = dims_of(value.type)
    if declared is None:
        return
    if len(declared) != len(shape):
        raise ShapeError(f"input {value.name!r} has rank {len(declared)}, not {len(shape)}", where=where)
    for axis, (have, want) in enumerate(zip(declared, shape, strict=True)):
        if want < 0 or (have is not None and have != want):
            raise ShapeError(
                f"dimension {axis} of input {value.name!r} is {'a size' if have is None else have}, not {want}",
                where=where,
            )
        parameter = name_of_dim(value.type.tensor_type.shape.dim[axis])
        if parameter:
            sizes[parameter].add(want)


def _bound_type(
    value: onnx.ValueInfoProto, shapes: Mapping[str, Sequence[int]], sizes: _Sizes, needed: Mapping[str, Declared]
) -> TypeProto:
    bound = TypeProto()
    bound.CopyFrom(value.type)
    if value.type.WhichOneof("value") != "tensor_type":
        return bound
    given = shapes.get(value.name)
    if given is None and dims_of(value.type) is None:
        raise unknown_shape(value.name, None, others=needed)
    dims = (
        list(given)
        if given is not None
        else [_size(value, axis, sizes, needed) for axis in range(len(dims_of(value.type) or ()))]
    )
    bound.tensor_type.shape.CopyFrom(
        TensorShapeProto(dim=[TensorShapeProto.Dimension(dim_value=int(dim)) for dim in dims])
    )
    return bound


def _size(value: onnx.ValueInfoProto, axis: int, sizes: _Sizes, needed: Mapping[str, Declared]) -> int:
    dim = value.type.tensor_type.shape.dim[axis]
    known = dim_of(dim)
    if known is not None:
        return known
    found = sizes.get(dim.dim_param, set())
    if len(found) != 1:
        state = f"given as {' and '.join(map(str, sorted(found)))}" if found else "open"
        why = f"dimension {axis} ({dim.dim_param or 'unnamed'}) is {state}"
        raise unknown_shape(value.name, needed[value.name], why, needed)
    return next(iter(found))
