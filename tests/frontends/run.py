"""Runs an imported model through TVM's own pipeline, so that these tests see the frontend alone.

The checks of indices belong to it: they are what moves negative ones to their place.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax

from backends.onnxruntime import fallback
from fusion.frontends import ImportedModel
from fusion.passes.guard_operands import GuardOperands
from tests.passes.modules import build_alone


def run(imported: ImportedModel, *arrays: Any) -> list[Any]:
    """Return the outputs of `imported` for `arrays`."""
    subgraphs = [fallback.register(key, data, threads=1) for key, data in imported.subgraphs.items()]
    if imported.mod is None:
        return fallback.run(subgraphs[0], arrays)
    machine = relax.VirtualMachine(build_alone(GuardOperands()(imported.mod)), tvm.cpu())
    result = machine["main"](*(tvm.runtime.tensor(np.asarray(array)) for array in arrays))
    fields = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
    return [field.numpy() for field in fields]
