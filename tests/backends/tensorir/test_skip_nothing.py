"""Kernels with symbols do nothing where their results have no elements, and all they do elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from backends.cpu.codegen.generate import generate_module
from backends.tensorir.skip_nothing import skip_nothing
from fusion import context


def divided(rows: int | None) -> tirx.PrimFunc:
    """Return a kernel that stores 100 // n to the first of n * `rows` elements, or n where `rows` is None, of one."""
    n = tirx.Var("n", "int64")
    x = te.placeholder((n,), "int64", "x")
    made = te.compute((1,) if rows is None else (n * rows,), lambda i: x[0] * 0 + i, "made")
    source = te.create_prim_func([x, made])
    result = source.params[1]
    loops = tirx.BufferStore(result, tirx.floordiv(tirx.const(100, "int64"), n if rows else n + 1), [0])
    return skip_nothing(source.with_body(loops), source)


@pytest.mark.parametrize("rows", [1, 3, None])
def test_results_without_elements_are_left_alone(rows: int | None) -> None:
    func = divided(rows)
    assert isinstance(func.body, tirx.IfThenElse) == (rows is not None)
    module = tvm.IRModule({"k": func.with_attr("global_symbol", "k")})
    library = generate_module(module, context.resolve("llvm").target)
    for n in (0, 1, 4):
        result = tvm.runtime.tensor(np.full(1 if rows is None else n * rows, 7, "int64"))
        library["k"](tvm.runtime.tensor(np.zeros(n, "int64")), result)
        assert result.numpy()[:1].tolist() == ([100 // n] if rows and n else [] if rows else [100 // (n + 1)])
