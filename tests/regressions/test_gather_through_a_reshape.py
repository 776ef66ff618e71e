"""Of indices read through a reshape, TVM made others where the range of a vector's lanes was not known to it: rows of a
rotary embedding came from other positions."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from backends.cpu.codegen.generate import generate_module
from backends.cpu.schedule import schedule
from fusion import context
from tests.backends.cpu.kernels.anchored import normal, one_kernel

op = relax.op


def test_indices_read_through_a_reshape() -> None:
    places = np.array([[30, -20, 41], [24, 11, -38]], "int64")
    table, data = normal((50, 4), 1), normal((2, 3, 4, 4), 2)

    def build(b: relax.BlockBuilder, p: relax.Var, t: relax.Var, x: relax.Var) -> relax.Expr:
        negative = b.emit(op.less(p, relax.const(0, "int64")))
        inside = b.emit(op.where(negative, b.emit(op.add(p, relax.const(50, "int64"))), p))
        rows = b.emit(op.reshape(b.emit(op.take(t, inside, 0)), (2, 3, 1, 4)))
        return op.multiply(rows, x)

    ctx = context.resolve("llvm")
    func = schedule(one_kernel(build, [places, table, data]), ctx.compiler.machine, 1).func
    with ctx.target:
        code = generate_module(tvm.IRModule({"kernel": func.with_attr("global_symbol", "kernel")}), ctx.target)
    result = tvm.runtime.tensor(np.zeros_like(data))
    code["kernel"](*(tvm.runtime.tensor(array) for array in (places, table, data)), result)
    np.testing.assert_array_equal(result.numpy(), table[places][:, :, None] * data)
