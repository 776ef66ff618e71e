"""Inputs for trying a model out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fusion.errors import ShapeError
from fusion.signature import TensorSpec, require_static
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
