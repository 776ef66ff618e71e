"""Random inputs for a model: the same seed gives the same arrays in every process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from fusion.errors import ModelFileError, ShapeError

# Token ids, masks and flags all accept 0 and 1; a model with a wider range says so through `ranges`.
_DEFAULT_RANGE = (0, 2)


@dataclass(frozen=True)
class InputSpec:
    """One model input.

    Attributes:
        name: As in the ONNX graph.
        shape: Concrete.
        dtype: numpy name.
        low, high: Half-open range of integer inputs; floats are standard normal.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    low: int = _DEFAULT_RANGE[0]
    high: int = _DEFAULT_RANGE[1]

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """Return one random array."""
        kind = np.dtype(self.dtype)
        if kind.kind == "f":
            return np.asarray(rng.standard_normal(self.shape)).astype(kind)
        return np.asarray(rng.integers(self.low, self.high, self.shape)).astype(kind)


def read_specs(
    path: Path, shapes: Mapping[str, Sequence[int]], ranges: Mapping[str, tuple[int, int]] | None = None
) -> tuple[InputSpec, ...]:
    """Return the inputs of the ONNX file at `path` with `shapes` bound.

    Raises:
        ModelFileError: The file cannot be read as ONNX.
        ShapeError: A dimension is unknown and `shapes` does not give it, or `shapes` names no input.
    """
    try:
        graph = onnx.load(path, load_external_data=False).graph
    except Exception as error:
        raise ModelFileError("the file cannot be read as an ONNX model", where=str(path), why=str(error)) from error
    constants = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in constants]
    unknown = set(shapes) - {value.name for value in inputs}
    if unknown:
        raise ShapeError(f"the model has no input {sorted(unknown)}", hint=f"inputs: {[v.name for v in inputs]}")
    return tuple(_spec(value, shapes, (ranges or {}).get(value.name, _DEFAULT_RANGE)) for value in inputs)


def _spec(value: onnx.ValueInfoProto, shapes: Mapping[str, Sequence[int]], bounds: tuple[int, int]) -> InputSpec:
    kind = value.type.tensor_type
    shape = tuple(shapes.get(value.name, [dim.dim_value for dim in kind.shape.dim]))
    if value.name not in shapes and any(size < 1 for size in shape):
        raise ShapeError(
            f"input {value.name!r} has a dimension without a size", hint=f"give shapes={{{value.name!r}: (...)}}"
        )
    return InputSpec(value.name, shape, helper.tensor_dtype_to_np_dtype(kind.elem_type).name, *bounds)


def draw(specs: Sequence[InputSpec], seed: int) -> dict[str, np.ndarray]:
    """Return one random array per input."""
    rng = np.random.default_rng(seed)
    return {spec.name: spec.draw(rng) for spec in specs}
