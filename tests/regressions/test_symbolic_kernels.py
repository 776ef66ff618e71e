"""A kernel of symbolic shape ended the reading of accesses, and passes dropped the casts that define its dimensions."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax, te, tirx

import fusion
from backends.cpu.schedule import schedule
from backends.tensorir.kernel_info import kernel_info
from backends.tensorir.result import Kernel
from fusion import context
from partition.access import MappingKind, is_static, read_access


def symbolic_kernel() -> tirx.PrimFunc:
    """Return y[n] = 2 * x[n]."""
    x = te.placeholder((tirx.Var("n", "int64"),), "float32", "x")
    return te.create_prim_func([x, te.compute(x.shape, lambda i: x[i] * 2.0, "y")])


def test_access_is_opaque() -> None:
    func = symbolic_kernel()
    assert not is_static(func)
    assert read_access(func).kind is MappingKind.OPAQUE


def test_it_is_scheduled_and_reported() -> None:
    func = symbolic_kernel()
    made = schedule(func, context.resolve().compiler.machine, threads=2)
    assert made.template == "stitch_stages"
    assert not made.note
    info = kernel_info("double", Kernel(func, made, made.func))
    assert (info.flops, info.bytes) == (0, 0)


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_match_cast_survives(dtype: str) -> None:
    """unique(x) has as many elements as the data has; a cast names their number, and a kernel follows."""
    x = relax.Var("x", relax.TensorType((6,), dtype))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            found = builder.emit(relax.op.unique(x, sorted=True))
            named = builder.match_cast(found, relax.TensorType((tirx.Var("n", "int64"),), dtype))
            result = builder.emit_output(relax.op.add(named, named))
        builder.emit_func_output(result)
    compiled = fusion.compile(builder.get(), threads=1)
    for values in ([3, 1, 3, 2, 1, 3], [5, 5, 5, 5, 5, 5], [6, 5, 4, 3, 2, 1]):
        (made,) = compiled(np.array(values, dtype))
        np.testing.assert_array_equal(made, 2 * np.unique(values).astype(dtype))


def test_hidden_writes_stay_as_they_are() -> None:
    """An extern block that declares nothing may use any buffer: inlining another into it left that undefined."""
    x = te.placeholder((4,), "float32", "x")
    doubled = te.compute((4,), lambda i: x[i] * 2.0, "doubled")

    def copy(ins: list[tirx.Buffer], outs: list[tirx.Buffer]) -> tirx.Stmt:
        i = tirx.Var("i", "int64")
        store = tirx.BufferStore(outs[0], tirx.BufferLoad(ins[0], [i]), [i])
        return tirx.For(i, tirx.const(0, "int64"), tirx.const(4, "int64"), tirx.ForKind.SERIAL, store)

    func = te.create_prim_func([x, te.extern([(4,)], [doubled], copy, name="copied", dtype=["float32"])])
    made = schedule(func, context.resolve().compiler.machine, threads=1)
    library = tvm.compile(tvm.IRModule({"k": made.func.with_attr("global_symbol", "k")}), context.resolve().target)
    result = tvm.runtime.tensor(np.zeros(4, "float32"))
    library["k"](tvm.runtime.tensor(np.arange(4, dtype="float32")), result)
    np.testing.assert_array_equal(result.numpy(), 2 * np.arange(4))
