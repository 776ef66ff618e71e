"""Any model of the zoo in a file for batches of any size, its other dimensions closed."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import numpy_helper

from bench.zoo.model import Recipe, Shapes

if TYPE_CHECKING:
    from bench.zoo.export import Select

SUFFIX = "_batch"
_BATCH = "batch"


def open_batch(recipe: Recipe) -> Recipe:
    """Return the recipe of the same network with the same weights, in a file for any batch.

    A torch module is exported once more. A file that is no export is opened itself.
    """
    build = _open_file if recipe.module is None else _export
    return replace(recipe, name=f"{recipe.name}{SUFFIX}", build=functools.partial(build, recipe))


def batch_axis(shape: Sequence[int]) -> int | None:
    """Return which dimension of a tensor counts the batch where that is 1: the first of this extent; None without."""
    return next((axis for axis, extent in enumerate(shape) if extent == 1), None)


def batched(shapes: Shapes, batch: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a batch, given those of a batch of 1."""
    found = {}
    for name, shape in shapes.items():
        axis = batch_axis(shape)
        found[name] = tuple(batch if place == axis else extent for place, extent in enumerate(shape))
    return found


def _export(recipe: Recipe, path: Path) -> None:
    from bench.zoo import export

    assert recipe.module is not None, "it has a torch module"
    module: Select = recipe.module()
    axes = {name: {axis: _BATCH} for name, shape in recipe.shapes.items() if (axis := batch_axis(shape)) is not None}
    export.write(module, path, recipe.shapes, {**axes, **{name: {0: _BATCH} for name in module.outputs}})


def _open_file(recipe: Recipe, path: Path) -> None:
    """Write the model of `recipe` with its inputs' batch open; what their files say of outputs and values is left out.

    A Reshape to a constant shape that begins with 1 would keep the batch at 1: with 0 there it copies the extent.
    """
    with tempfile.TemporaryDirectory() as folder:
        closed = Path(folder) / path.name
        recipe.build(closed)
        model = onnx.load(closed)
    for value in model.graph.input:
        if value.name in recipe.shapes:
            _declare(value, recipe.shapes[value.name])
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    del model.graph.value_info[:]
    targets = {node.input[1] for node in model.graph.node if node.op_type == "Reshape"}
    for tensor in model.graph.initializer:
        target = numpy_helper.to_array(tensor)
        if tensor.name in targets and target.size and target[0] == 1:
            tensor.CopyFrom(numpy_helper.from_array(np.array([0, *target[1:]], np.int64), tensor.name))
    onnx.save(model, path)


def _declare(value: onnx.ValueInfoProto, shape: Sequence[int]) -> None:
    for axis, (dim, extent) in enumerate(zip(value.type.tensor_type.shape.dim, shape, strict=True)):
        if axis == batch_axis(shape):
            dim.dim_param = _BATCH
        else:
            dim.dim_value = extent
