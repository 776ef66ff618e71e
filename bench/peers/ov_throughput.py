"""OpenVINO on the CPU for many callers: throughput hint, a request for each of them, the rest as in `ov.py`.

Settings: https://docs.openvino.ai/2026/openvino-workflow/running-inference/optimize-inference/high-level-performance-hints.html
"""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
from openvino.properties import hint

from bench.peers.engine import Arrays, Engine, Job, Runner
from bench.peers.ov import compile_model


class OpenVinoThroughput:
    """One compiled model, as many streams as OpenVINO finds best, and an inference request for each calling thread."""

    def load(self, job: Job, folder: Path) -> Runner:
        """Read, fix the shapes, compile."""
        compiled = compile_model(job, hint.PerformanceMode.THROUGHPUT)
        names = [port.get_any_name() for port in compiled.outputs]
        of_thread = threading.local()

        def run(inputs: Arrays) -> Arrays:
            if not hasattr(of_thread, "request"):
                of_thread.request = compiled.create_infer_request()
            results = of_thread.request.infer(inputs, share_inputs=True, share_outputs=True)
            return {name: np.asarray(results[port]) for port, name in enumerate(names)}

        return run


ENGINE: Engine = OpenVinoThroughput()
