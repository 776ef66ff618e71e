"""The compiled module: run, save, load, explain, profile."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax

from fusion.context import Context
from fusion.frontends.imported import ImportedModel


class CompiledModule:
    """(Skeleton: the module helper replaces this.)"""

    def __init__(self, lowered: tvm.IRModule, imported: ImportedModel, ctx: Context) -> None:
        self.imported = imported
        executable = tvm.compile(lowered, target=ctx.target)
        self._vm = relax.VirtualMachine(executable, tvm.cpu())

    def run(self, inputs: dict[str, Any]) -> dict[str, np.ndarray]:
        outputs = self(*(inputs[spec.name] for spec in self.imported.inputs))
        return dict(zip((o.name for o in self.imported.outputs), outputs, strict=True))

    def __call__(self, *arrays: Any) -> tuple[np.ndarray, ...]:
        result = self._vm["main"](*(tvm.runtime.tensor(np.asarray(a)) for a in arrays))
        fields = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
        return tuple(f.numpy() for f in fields)
