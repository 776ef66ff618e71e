"""Runs a model that TVM cannot hold at all (strings, sequences) on ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from backends.library_subgraph import open_subgraph
from backends.registry import model_runner
from backends.subgraphs import library_of
from fusion.errors import NotInstalledError
from fusion.module.input_slot import TEXT, check_array, to_value
from fusion.signature import TensorSpec
from fusion.tensors import numpy_dtype


class FallbackProgram:
    """The whole model as one fallback subgraph."""

    def __init__(self, subgraph: object, inputs: tuple[TensorSpec, ...]) -> None:
        self._subgraph = subgraph
        self._inputs = tuple(_Input.of(spec) for spec in inputs)
        self._runner = model_runner()

    def run(self, arrays: Sequence[Any]) -> tuple[np.ndarray, ...]:
        """See `Program.run`; an output that is no tensor is a list (a sequence) or None (an empty optional)."""
        # A zip that is strict takes 0.5 us; `CompiledModule` has counted the arrays.
        checked = [known.checked(value) for known, value in zip(self._inputs, arrays)]  # noqa: B905
        return tuple(self._runner.run(self._subgraph, checked))


@dataclass(frozen=True)
class _Input:
    """What an input takes.

    Attributes:
        spec: Of it.
        shape, dtype: Of arrays that fit it, which most calls give; None where it has no dtype of NumPy's or takes other
            shapes too.
    """

    spec: TensorSpec
    shape: tuple[int, ...] | None
    dtype: np.dtype[Any] | None

    @staticmethod
    def of(spec: TensorSpec) -> _Input:
        if not spec.is_tensor or spec.dtype in TEXT or spec.shape is None or None in spec.shape:
            return _Input(spec, None, None)
        return _Input(spec, spec.extents, numpy_dtype(spec.dtype))

    def checked(self, value: Any) -> Any:
        if type(value) is np.ndarray and value.shape == self.shape and value.dtype == self.dtype:
            return value
        known = to_value(value, self.spec)
        if self.spec.is_tensor:
            check_array(known, self.spec)
        return known


def register_fallbacks(subgraphs: Mapping[str, bytes], threads: int) -> tuple[object, ...]:
    """Make subgraphs callable from compiled code by their keys, for as long as the caller holds what this returns.

    Raises:
        ExecutionError: A library cannot open one.
        NotInstalledError: There are some, and the library that runs them is not installed.
    """
    return tuple(_register(key, data, threads) for key, data in subgraphs.items())


def open_parts_apart(forms: Sequence[Mapping[str, bytes]], threads: int) -> None:
    """Have another process, one for all, open the subgraphs that libraries run of some forms.

    Raises:
        ExecutionError: One crashed or hung there.
    """
    parts = {key: data for subgraphs in forms for key, data in subgraphs.items() if library_of(key)}
    if not parts:
        return
    # Here, not above: of all modules only these need what talks with another process.
    from fusion.apart import asking_apart, open_saved_apart

    with asking_apart():
        for key, data in parts.items():
            open_saved_apart(key, data, threads)


def _register(key: str, data: bytes, threads: int) -> object:
    library = library_of(key)
    if library:
        return open_subgraph(library, key, data, threads)
    # ONNX Runtime is imported only where a model needs it.
    try:
        runner = model_runner()
    except ModuleNotFoundError as error:
        raise NotInstalledError(
            f"parts of the module run on ONNX Runtime, and {error.name} is not installed",
            hint="pip install onnxruntime onnx",
        ) from error
    return runner.register(key, data, threads)
