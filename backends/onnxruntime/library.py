"""ONNX Runtime as a `GraphLibrary`: regions that other kernels could run too."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from backends.backend import Open
from backends.installed_version import installed_version
from fusion.errors import UnsupportedOperatorError

if TYPE_CHECKING:
    from tvm import relax


@dataclass(frozen=True)
class OnnxRuntimeRegions:
    """A `GraphLibrary`."""

    @property
    def version(self) -> str:
        """See `GraphLibrary`."""
        return installed_version("onnxruntime")

    def why_not_taken(self, call: relax.Call) -> str:
        """See `GraphLibrary`."""
        from backends.onnxruntime.prepare import refusal_of
        from backends.to_onnx.region import export_alone

        try:
            return refusal_of(export_alone(call))
        except UnsupportedOperatorError as reason:
            return reason.why or reason.what

    def export(self, function: relax.Function) -> bytes:
        """See `GraphLibrary`."""
        from backends.onnxruntime.prepare import prepare
        from backends.to_onnx.region import export_region

        return prepare(export_region(function))

    def open(self, data: bytes, threads: int) -> Open:
        """See `GraphLibrary`; its sessions' threads spin within a run only, as those of fallbacks."""
        from backends.onnxruntime.fallback import register, run

        subgraph = register(f"region {hashlib.sha256(data).hexdigest()} {threads}", data, threads)

        def call(arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
            return run(subgraph, arrays)

        return call


LIBRARY = OnnxRuntimeRegions()
