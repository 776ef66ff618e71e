"""ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx

from backends.onnxruntime import fallback
from backends.onnxruntime.fallback import SessionSubgraph, open_session, register
from backends.onnxruntime.prepare import MAX_OPSET, prepare, refusal_of
from fusion.errors import UnsupportedOperatorError

_VERSIONS = {"": MAX_OPSET, "ai.onnx.ml": 5, "com.microsoft": 1, "com.microsoft.nchwc": 1}


@dataclass(frozen=True)
class OnnxRuntimeRunner:
    """A `ModelRunner`."""

    @property
    def versions(self) -> Mapping[str, int]:
        """See `ModelRunner`."""
        return _VERSIONS

    def prepare(self, model: onnx.ModelProto) -> bytes:
        """See `ModelRunner`."""
        return prepare(model)

    def refusal_of(self, model: onnx.ModelProto) -> str:
        """See `ModelRunner`."""
        return refusal_of(model)

    def output_types(self, model: onnx.ModelProto) -> dict[str, tuple[str, Sequence[int | str | None]]]:
        """See `ModelRunner`."""
        try:
            session = open_session(model.SerializeToString(), threads=1, optimize=False)
        except (UnsupportedOperatorError, ValueError):  # protobuf writes no model of 2 GB or more
            return {}
        return {value.name: (value.type, value.shape) for value in session.get_outputs()}

    def register(self, key: str, data: bytes, threads: int) -> SessionSubgraph:
        """See `ModelRunner`."""
        return register(key, data, threads)

    def run(self, subgraph: SessionSubgraph, values: Sequence[Any]) -> list[Any]:
        """See `ModelRunner`."""
        return fallback.run(subgraph, values)


BACKEND = OnnxRuntimeRunner()
