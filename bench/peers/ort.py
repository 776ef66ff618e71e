"""ONNX Runtime on the CPU: all graph optimisations, spinning threads.

Settings: https://onnxruntime.ai/docs/performance/tune-performance/threading.html
"""

from __future__ import annotations

from pathlib import Path

import onnxruntime

from bench.peers.engine import Arrays, Engine, Job, Runner


class OnnxRuntime:
    """One session per model."""

    def load(self, job: Job, folder: Path) -> Runner:
        """Make a session."""
        return self.open(job)

    def open(self, job: Job) -> Runner:
        """Make a session, which takes any shape that the model allows."""
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.intra_op_num_threads = job.threads
        options.inter_op_num_threads = 1
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.add_session_config_entry("session.intra_op.allow_spinning", "1")
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(job.path, options, providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]

        def run(inputs: Arrays) -> Arrays:
            return dict(zip(names, session.run(names, inputs), strict=True))

        return run


ENGINE: Engine = OnnxRuntime()
