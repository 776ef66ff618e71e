"""A BlockBuilder that an exception left open made TVM print a warning to stderr when it went: in any later test."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

_COMMON = """
import gc
import numpy as np, onnx, tvm
from onnx import TensorProto, helper
import fusion
from fusion.errors import FusionError
from tvm import relax

def refused(model):
    try:
        fusion.compile(model, strict=True)
    except FusionError:
        gc.collect()
        return
    raise AssertionError("it was compiled")

def fails(*arguments, **named):
    raise ValueError("a defect")

def onnx_model(nodes):
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [value("x", 1, [2, 3])], [value("y", 1, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
"""
_ONNX = """
refused(onnx_model([helper.make_node("Relu", ["x"], ["a"]), helper.make_node("MatMul", ["a", "a"], ["y"])]))
result = helper.make_tensor_value_info("b", 1, None)
bad = helper.make_graph([helper.make_node("Det", ["x"], ["b"])], "b", [], [result])
refused(onnx_model([helper.make_node("ReduceMax", ["x"], ["m"], keepdims=0),
                    helper.make_node("Cast", ["m"], ["c"], to=9),
                    helper.make_node("If", ["c"], ["y"], then_branch=bad, else_branch=bad)]))
"""
_RELAY = """
refused("def @main(%c: bool, %x: float32) { if (%c) { %x } else { take(nn.relu(%x), %x) } }")
refused("def @main(%x: Tensor[(2, 3), float32]) { nn.conv2d(nn.relu(%x), %x) }")
"""
_RELAX = """
from dataclasses import replace
from backends.cpu.kernels import priority
from backends.cpu.kernels.template import Lower
from backends.tensorir import legalize, legalize_calls
from fusion.passes import rebuild
from fusion.passes.layout import assign_layouts
from tests.regressions.relax_models import module

Module = module(lambda b, x: relax.op.nn.softmax(b.emit(relax.op.matmul(x, x))), {"x": ((4, 4), "float32")})
places = [(assign_layouts._Walk, "run"), (rebuild, "substitute")]
for owner, name in places:
    whole = getattr(owner, name)
    setattr(owner, name, fails)
    refused(Module)
    setattr(owner, name, whole)
priority.TEMPLATES = [replace(template, lowerings={"relax.matmul": Lower(fails)}) for template in priority.TEMPLATES]
legalize.LEGALIZATIONS["relax.nn.softmax"] = fails
legalize_calls._of_tvm()
fusion.compile(Module)
tvm.ir.Op.get("relax.nn.softmax").reset_attr("FLegalize")
refused(Module)
"""
_TORCH = """
import torch
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter
ExportedProgramImporter._translate_fx_graph = fails
refused((torch.nn.ReLU(), (torch.zeros(2, 3),)))
"""


def test_refusals_say_nothing_on_stderr() -> None:
    # In one process, as importing TVM takes longer than all of these; that of Relax breaks operators for good.
    frontends = [_ONNX, _RELAY, *([_TORCH] if importlib.util.find_spec("torch") else []), _RELAX]
    parts = [f"{part}gc.collect()\n" for part in frontends]
    code = "\n".join([f"{_COMMON}import logging\nlogging.disable()", *parts])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
