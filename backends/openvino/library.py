"""OpenVINO as a `GraphLibrary`; to open a region takes nothing of the compiler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np

from backends.backend import Open
from backends.installed_version import installed_version
from backends.openvino.load_core import load_core
from fusion.errors import UnsupportedOperatorError

if TYPE_CHECKING:
    from tvm import relax

_INPUT = "input"
"""What the names of inputs begin with, in `backends.to_onnx.region`."""
_DTYPES = frozenset({"float32", "bool"})
"""Its CPU plugin (2026.4) computes float64 as float32 and int64 as int32: 1 + 1e-12 is 1, 2**40 + 1 is 1. It adds int32
exactly; nobody has looked at its other operators of that."""
_OF_NAN = {
    "relax.greater": "OpenVINO takes NaN to be greater than anything",
    "relax.greater_equal": "OpenVINO takes NaN to be greater than anything",
}
"""What its kernels (2026.4) decide otherwise: a wrong mask or branch shows no NaN behind it."""


@dataclass(frozen=True)
class OpenVinoRegions:
    """A `GraphLibrary`."""

    @property
    def version(self) -> str:
        """See `GraphLibrary`."""
        return installed_version("openvino")

    def why_not_taken(self, call: relax.Call) -> str:
        """See `GraphLibrary`."""
        from backends.to_onnx.region import dtypes_of, export_alone

        others = dtypes_of(call) - _DTYPES
        if others:
            return f"OpenVINO computes {', '.join(sorted(others))} as other dtypes"
        if call.op.name in _OF_NAN:
            return _OF_NAN[call.op.name]
        if call.op.name == "relax.astype" and str(call.attrs.dtype) == "bool":
            return "OpenVINO makes false of NaN"
        try:
            export_alone(call)
        except UnsupportedOperatorError as reason:
            return reason.why or reason.what
        return ""

    def export(self, function: relax.Function) -> bytes:
        """See `GraphLibrary`."""
        from backends.to_onnx.region import export_region

        data: bytes = export_region(function).SerializeToString(deterministic=True)
        return data

    def open(self, data: bytes, threads: int) -> Open:
        """See `GraphLibrary`."""
        import openvino
        from openvino import properties
        from openvino.properties import hint

        core = load_core()
        config = {
            hint.performance_mode: hint.PerformanceMode.LATENCY,
            hint.inference_precision: openvino.Type.f32,
            hint.enable_cpu_pinning: False,  # which would bind the caller's thread, and with it our pool
            properties.num_streams: 1,
            properties.inference_num_threads: threads,
        }
        return _Requests(core.compile_model(core.read_model(data, b""), "CPU", config))


class _Requests:
    """Runs a compiled model; each call that runs at a time has a request to itself."""

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled
        # What no operator reads is no input any more, as that of `ones_like`.
        self._inputs = [int(port.get_any_name().removeprefix(_INPUT)) for port in compiled.inputs]
        self._outputs = range(len(compiled.outputs))
        self._idle: SimpleQueue[Any] = SimpleQueue()

    def __call__(self, arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        import openvino

        try:
            request = self._idle.get_nowait()
        except Empty:
            request = self._compiled.create_infer_request()
        # `request.infer(arrays)` does the same in Python, and takes 54 us more.
        for port, place in enumerate(self._inputs):
            request.set_input_tensor(port, openvino.Tensor(arrays[place], shared_memory=True))
        request.infer()
        results = [request.get_output_tensor(place).data.copy() for place in self._outputs]
        self._idle.put(request)
        return results


LIBRARY = OpenVinoRegions()
