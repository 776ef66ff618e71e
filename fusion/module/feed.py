"""Completes the inputs of a module with random arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fusion.module.compiled import CompiledModule
from fusion.module.random_inputs import random_inputs
from fusion.signature import TensorSpec


def complete_inputs(
    module: CompiledModule, given: Mapping[str, np.ndarray], shapes: Mapping[str, Sequence[int]], seed: int
) -> dict[str, np.ndarray]:
    """Return `given` and a random array for each other input; `shapes` says how large where the module leaves it open.

    Raises:
        ShapeError: An input's shape is open and `shapes` does not name it.
    """
    open_inputs = [_shaped(spec, shapes) for spec in module.inputs if spec.name not in given]
    return {**given, **random_inputs(open_inputs, seed)}


def _shaped(spec: TensorSpec, shapes: Mapping[str, Sequence[int]]) -> TensorSpec:
    return TensorSpec(spec.name, tuple(shapes[spec.name]), spec.dtype) if spec.name in shapes else spec
