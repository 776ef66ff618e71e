"""TVM's own default CPU pipeline on what its ONNX importer makes of the model, shapes fixed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

from bench.inputs import read_specs
from bench.peers.engine import Arrays, Engine, Job, Runner


class PlainTvm:
    """`relax.get_pipeline("zero")` and LLVM, nothing tuned."""

    def load(self, job: Job, folder: Path) -> Runner:
        """Fix the shapes, import and compile."""
        tvm.get_global_func("runtime.config_threadpool")(1, job.threads)
        proto = fix_shapes(job, folder / "fixed.onnx")
        module = from_onnx(proto, shape_dict={name: list(shape) for name, shape in job.shapes.items()})
        target = tvm.target.Target.from_device("cpu")
        executable = relax.build(relax.get_pipeline("zero")(module), target)
        return runner(relax.VirtualMachine(executable, tvm.cpu()), job, proto)


def runner(
    machine: relax.VirtualMachine, job: Job, proto: onnx.ModelProto, weights: Sequence[tvm.runtime.Tensor] = ()
) -> Runner:
    """Return a function of the job's inputs that runs `main`, which takes `weights` behind them.

    Inputs are copied to where kernels may read whole vectors (8 us each), results lie where they were written.
    """
    held = {spec.name: tvm.runtime.empty(spec.shape, spec.dtype) for spec in read_specs(job.path, job.shapes)}
    outputs, main = [output.name for output in proto.graph.output], machine["main"]

    def run(arrays: Arrays) -> Arrays:
        result = main(*(tensor.copyfrom(arrays[name]) for name, tensor in held.items()), *weights)
        fields = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
        return {name: np.from_dlpack(field) for name, field in zip(outputs, fields, strict=True)}

    return run


def fix_shapes(job: Job, path: Path) -> onnx.ModelProto:
    """Return the model with the job's shapes, and what follows from them folded by ONNX Runtime; `path` is scratch.

    TVM 0.27's importer refuses shapes that the graph computes: 6 of 13 zoo models without this, none with it.
    """
    model = onnx.load(job.path)
    for value in model.graph.input:
        dims = value.type.tensor_type.shape.dim
        for dim, size in zip(dims, job.shapes.get(value.name, ()), strict=False):
            dim.dim_value = size
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    model.graph.ClearField("value_info")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(path)
    options.log_severity_level = 3
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return onnx.load(path)


ENGINE: Engine = PlainTvm()
