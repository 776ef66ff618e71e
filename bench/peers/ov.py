"""OpenVINO on the CPU: latency hint, the job's precision (its default may be bfloat16), shapes fixed
where the job has them.

Settings: https://docs.openvino.ai/2026/openvino-workflow/running-inference/optimize-inference.html
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import openvino
from openvino import properties
from openvino.properties import hint

from backends.openvino.load_core import load_core
from bench.peers.engine import Arrays, Engine, Job, Runner

_PRECISIONS = {"fp32": openvino.Type.f32, "bf16": openvino.Type.bf16}


def compile_model(job: Job, mode: hint.PerformanceMode) -> openvino.CompiledModel:
    """Return the job's model with its shapes fixed, compiled for the CPU and the hint `mode`."""
    core = load_core()
    model = core.read_model(job.path)
    model.reshape({name: openvino.PartialShape(list(shape)) for name, shape in job.shapes.items()})
    config = {
        hint.performance_mode: mode,
        hint.inference_precision: _PRECISIONS[job.precision],
        properties.inference_num_threads: job.threads,
    }
    return core.compile_model(model, "CPU", config)


class OpenVino:
    """One compiled model and one inference request."""

    def load(self, job: Job, folder: Path) -> Runner:
        """Read, fix the shapes, compile."""
        return self.open(job)

    def open(self, job: Job) -> Runner:
        """Read, fix the shapes that the job has, compile; what OpenVINO makes for a shape it makes when it meets it."""
        compiled = compile_model(job, hint.PerformanceMode.LATENCY)
        request = compiled.create_infer_request()
        names = [port.get_any_name() for port in compiled.outputs]

        def run(inputs: Arrays) -> Arrays:
            results = request.infer(inputs, share_inputs=True, share_outputs=True)
            return {name: np.asarray(results[port]) for port, name in enumerate(names)}

        return run


ENGINE: Engine = OpenVino()
