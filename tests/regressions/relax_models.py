"""Small Relax modules for the regression tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import tvm
from tvm import relax

Build = Callable[..., relax.Expr]


def module(build: Build, inputs: Mapping[str, tuple[tuple[int, ...], str]]) -> tvm.IRModule:
    """Return a module whose `main` takes tensors of these (shape, dtype) and returns `build(builder, *inputs)`."""
    params = [relax.Var(name, relax.TensorType(shape, dtype)) for name, (shape, dtype) in inputs.items()]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(builder.normalize(build(builder, *params)))
        builder.emit_func_output(result)
    return builder.get()
