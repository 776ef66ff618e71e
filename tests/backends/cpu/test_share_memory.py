"""Buffers share memory, registers do not."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import tirx
from tvm.tirx import ForKind
from tvm_ffi.structural import structural_walk

from backends.cpu.codegen.generate import generate_module
from backends.cpu.codegen.share_memory import share_memory
from backends.tensorir.emit import Nest, ramp, splat


def written_in_turn(kind: ForKind, *sizes: int) -> tvm.IRModule:
    """Return a function with a loop, in which buffers of these sizes are used one after the other."""
    nest, result = Nest(), tirx.decl_buffer((4, len(sizes)), "float32", "result")
    with nest.loop("i", 4, kind) as i:
        for place, size in enumerate(sizes):
            with nest.loop("once", 2):
                buffer = nest.allocate(f"buffer{place}", (size,))
                nest.store(buffer, [ramp(0, 8)], splat(tirx.const(1, "float32"), 8))
                nest.store(result, [i, place], tirx.BufferLoad(buffer, [tirx.const(0, "int64")]))
    return tirx.transform.FlattenBuffer()(tvm.IRModule({"kernel": tirx.PrimFunc([result], nest.finish())}))


def allocated(root: object) -> list[int]:
    """Return the sizes of the buffers that are allocated inside `root`."""
    found: list[tirx.AllocBuffer] = []
    structural_walk(root, (tirx.AllocBuffer, found.append))
    return sorted(int(statement.buffer.ty.shape[0]) for statement in found)


@pytest.mark.parametrize("kind", [ForKind.SERIAL, ForKind.PARALLEL])
def test_registers_share_no_memory(kind: ForKind) -> None:
    mod = written_in_turn(kind, 16, 8, 16, 1000, 1000)
    after = share_memory()(mod)["kernel"]
    assert allocated(after.body) == [8, 16, 16, 1000]
    assert len(after.params) == 1
    loops: list[tirx.For] = []
    structural_walk(after.body, (tirx.For, lambda loop: loops.append(loop) if loop.kind == ForKind.PARALLEL else None))
    assert all(allocated(loop) == [8, 16, 16, 1000] for loop in loops), "registers belong to the function of their loop"


def test_the_module_stays_as_it_is() -> None:
    mod = written_in_turn(ForKind.PARALLEL, 16, 8)
    before = mod.script()
    share_memory()(mod)
    assert mod.script() == before


@pytest.mark.parametrize("kind", [ForKind.SERIAL, ForKind.PARALLEL])
def test_buffers_whose_size_a_call_says_share_no_memory(kind: ForKind) -> None:
    """TVM put two of one element type in one place, however large, where a loop read the one and wrote the other."""
    nest, n = Nest(), tirx.Var("n", "int64")
    x = tirx.decl_buffer((n,), "float32", "x")
    with nest.loop("i", 4, kind):
        first, second = (nest.allocate(name, (size,)) for name, size in (("first", n), ("second", n * 2)))
        for source, target in ((x, first), (first, second), (second, x)):
            with nest.loop("j", n) as j:
                nest.store(target, [j], tirx.BufferLoad(source, [j]))
    mod = tvm.IRModule({"kernel": tirx.PrimFunc([x], nest.finish())})
    after = share_memory()(mod)["kernel"]
    found: list[tirx.AllocBuffer] = []
    structural_walk(after.body, (tirx.AllocBuffer, found.append))
    assert [statement.buffer.name for statement in found] == ["first", "second"]
    assert len(after.params) == 1


def test_buffers_of_booleans_stay_booleans() -> None:
    """TVM made those that are only read and written in vectors of 4 buffers of int8x4, of which there is no `and`."""
    nest = Nest()
    x, result = (tirx.decl_buffer((128,), dtype, name) for dtype, name in (("float32", "x"), ("bool", "result")))
    below, above = (nest.allocate(name, (128,), "bool") for name in ("below", "above"))
    with nest.loop("i", 32) as i:
        place = [ramp(i * 4, 4)]
        value = tirx.BufferLoad(x, place)
        nest.store(below, place, value < splat(tirx.const(2, "float32"), 4))
        nest.store(above, place, value > splat(tirx.const(0, "float32"), 4))
    with nest.loop("i", 32) as i:
        place = [ramp(i * 4, 4)]
        low, high = tirx.BufferLoad(below, place), tirx.BufferLoad(above, place)
        nest.store(result, place, tirx.And(low, tirx.And(high, low)))
    kernel = tirx.PrimFunc([x, result], nest.finish()).with_attr("global_symbol", "kernel")
    built = generate_module(tvm.IRModule({"kernel": kernel}), tvm.target.Target("llvm"))
    values = np.linspace(-1, 3, 128, dtype=np.float32)
    found = tvm.runtime.tensor(np.zeros(128, bool))
    built["kernel"](tvm.runtime.tensor(values), found)
    np.testing.assert_array_equal(found.numpy(), (values > 0) & (values < 2))
