"""Idle lanes are neither loaded nor stored; registers and statements of their own count of lanes are left alone."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import tirx
from tvm.ir import Var
from tvm.tirx import ForKind

from backends.cpu.codegen.generate import generate_module
from backends.tensorir.emit import Expr, Nest, int64
from fusion import context

LANES = 16


def _sum_rows(nest: Nest, n: Var, x: Var, out: Var) -> None:
    """`out[i] = 2 x[i]` for the first `n` lanes, by way of a register, then `out[i] = -1` for the first two."""
    register = nest.allocate("register", (LANES,))

    def lanes(value: object, buffer: Var, begin: Expr) -> None:
        with nest.run("v", LANES, ForKind.VECTORIZED) as v:
            nest.store(buffer, [begin + v], value(v))

    begin = int64(0)
    with nest.masked(n):
        lanes(lambda v: tirx.BufferLoad(x, [begin + v]) * 2, register, int64(0))
        lanes(lambda v: tirx.BufferLoad(register, [v]), out, begin)
        with nest.masked(int64(2)):
            lanes(lambda v: tirx.const(-1.0, "float32"), out, begin)


@pytest.mark.parametrize("many", [0, 1, 2, 5, 15, 16])
def test_only_active_lanes_are_stored(many: int) -> None:
    nest, n = Nest(), Var("n", "int64")
    x, out = (tirx.decl_buffer((size,), "float32", name) for name, size in (("x", n), ("out", 3 * LANES)))
    _sum_rows(nest, n, x, out)
    func = tirx.PrimFunc([x, out], nest.finish()).with_attrs({"global_symbol": "k", "tirx.noalias": True})
    library = generate_module(tvm.IRModule({"k": func}), context.resolve().target)
    data, got = np.arange(many, dtype="float32"), tvm.runtime.tensor(np.full(3 * LANES, 7, "float32"))
    library["k"](tvm.runtime.tensor(data), got)
    want = np.full(3 * LANES, 7, "float32")
    want[:many] = 2 * data
    want[:2] = -1
    np.testing.assert_array_equal(got.numpy(), want)


@pytest.mark.parametrize("many", [1, 5, 16])
def test_places_apart_are_loaded_of_active_lanes(many: int) -> None:
    """`out[i] = x[i * step]`, of which LLVM's verifier refused what TVM makes of a masked load."""
    nest, n, step = Nest(), Var("n", "int64"), Var("step", "int64")
    x = tirx.decl_buffer((n, step), "float32", "x")
    out = tirx.decl_buffer((LANES,), "float32", "out")
    with nest.masked(n), nest.run("v", LANES, ForKind.VECTORIZED) as v:
        nest.store(out, [v], tirx.BufferLoad(x, [v, int64(0)]))
    func = tirx.PrimFunc([x, out], nest.finish()).with_attrs({"global_symbol": "k", "tirx.noalias": True})
    library = generate_module(tvm.IRModule({"k": func}), context.resolve().target)
    data, got = np.arange(3 * many, dtype="float32").reshape(many, 3), tvm.runtime.tensor(np.zeros(LANES, "float32"))
    library["k"](tvm.runtime.tensor(data), got)
    np.testing.assert_array_equal(got.numpy()[:many], data[:, 0])
    assert not got.numpy()[many:].any()
