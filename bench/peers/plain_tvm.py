"""TVM's own default CPU pipeline on what its ONNX importer makes of the model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

from bench.inputs import read_specs
from bench.peers.engine import Arrays, Engine, Job, Runner


class PlainTvm:
    """`relax.get_pipeline("zero")` and LLVM, nothing tuned."""


    def load(self, job: Job, folder: Path) -> Runner:
        """Import and compile."""
        tvm.get_global_func("runtime.config_threadpool")(1, job.threads)
        proto = onnx.load(job.path)
        module = from_onnx(proto, shape_dict={name: list(shape) for name, shape in job.shapes.items()})
        target = tvm.target.Target.from_device("cpu")
        executable = relax.build(relax.get_pipeline("zero")(module), target)
        machine = relax.VirtualMachine(executable, tvm.cpu())
        inputs = [spec.name for spec in read_specs(job.path, job.shapes)]
        outputs = [output.name for output in proto.graph.output]

        def run(arrays: Arrays) -> Arrays:
            result = machine["main"](*(tvm.runtime.tensor(arrays[name]) for name in inputs))
            fields = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
            return {name: np.asarray(field.numpy()) for name, field in zip(outputs, fields, strict=True)}

        return run


ENGINE: Engine = PlainTvm()
