"""Runs a model that TVM cannot hold at all (strings, sequences) on ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from backends.library_subgraph import open_subgraph
from backends.registry import model_runner
from backends.subgraphs import library_of
from fusion.errors import NotInstalledError
from fusion.module.input_slot import check_array, to_value
from fusion.signature import TensorSpec


class FallbackProgram:
    """The whole model as one fallback subgraph."""

    def __init__(self, subgraph: object, inputs: tuple[TensorSpec, ...]) -> None:
        self._subgraph = subgraph
        self._inputs = inputs

    def run(self, arrays: Sequence[Any]) -> tuple[np.ndarray, ...]:
        """See `Program.run`; an output that is no tensor is a list (a sequence) or None (an empty optional)."""
        checked = [_checked(value, spec) for value, spec in zip(arrays, self._inputs, strict=True)]
        return tuple(model_runner().run(self._subgraph, checked))


def _checked(value: Any, spec: TensorSpec) -> Any:
    known = to_value(value, spec)
    if spec.is_tensor:
        check_array(known, spec)
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
