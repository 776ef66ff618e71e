"""Inputs for trying a model out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fusion.errors import ShapeError, unknown_input
from fusion.options import read_shapes
from fusion.signature import TensorSpec, complete_shapes, require_static
from fusion.tensors import numpy_dtype


def random_inputs(inputs: Sequence[TensorSpec], seed: int = 0) -> dict[str, np.ndarray]:
    """Return arrays by input name: standard normal floats, and 0 or 1 for integers, which are valid indices almost
    anywhere.

    Raises:
        ShapeError: An input has an unknown dimension, or holds no numbers.
    """
    require_static(inputs)
    rng = np.random.default_rng(seed)
    return {spec.name: _draw(spec, rng) for spec in inputs}


def inputs_of_shapes(inputs: Sequence[TensorSpec], given: Any) -> Any:
    """Return `given`, arrays by input name, with random ones for the shapes among them (tuples or lists of sizes) and
    for inputs whose shapes follow from these; of a single input, `given` may be the shape itself.

    Raises:
        OptionError, ShapeError: A shape is none, or of no input, or does not follow.
    """
    if isinstance(given, tuple | list) and len(inputs) == 1:
        given = {inputs[0].name: given}
    if not isinstance(given, Mapping):
        return given
    sequences = {spec.name for spec in inputs if not spec.is_tensor}
    shapes = read_shapes({name: value for name, value in given.items()
                          if isinstance(value, tuple | list) and name not in sequences})  # fmt: skip
    if not shapes:
        return given
    names = [spec.name for spec in inputs]
    for name in shapes:
        if name not in names:
            raise unknown_input(name, names)
    arrays = {name: value for name, value in given.items() if name not in shapes}
    known = complete_shapes(inputs, shapes | {name: np.shape(value) for name, value in arrays.items()})
    drawn = [replace(spec, shape=known.get(spec.name, spec.shape)) for spec in inputs if spec.name not in arrays]
    return random_inputs(drawn) | arrays


def _draw(spec: TensorSpec, rng: np.random.Generator) -> np.ndarray:
    try:
        dtype = numpy_dtype(spec.dtype)
    except TypeError:
        raise ShapeError(
            f"there are no random values for input {spec.name!r} of type {spec.dtype}", hint="pass the input yourself"
        ) from None
    shape = spec.extents
    if dtype.kind in "biu":
        return rng.integers(0, 2, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)
