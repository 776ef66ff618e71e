"""Kernels that a model shares with one that was compiled before are not generated again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
import tvm_ffi
from onnx import numpy_helper
from tvm import te, tirx

import fusion
from backends.cpu.codegen import objects as codegen
from backends.tensorir.schedule_kernels import SOURCE, ScheduleKernels
from fusion import context
from fusion.module.kernel_cache import open_kernels
from tests.module.small_models import softmax_of_columns, two_layers, weights

X = np.random.default_rng(7).standard_normal((3, 8)).astype(np.float32)


def other_weights() -> onnx.ModelProto:
    """Return `softmax_of_columns` with other weights."""
    model = softmax_of_columns()
    for tensor, array in zip(model.graph.initializer, weights(5), strict=True):
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return model


@pytest.fixture
def generated(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The functions that LLVM gets."""
    found: list[str] = []
    original = codegen.generate_module

    def count(mod: Any, target: Any) -> Any:
        found.extend(symbol.name_hint for symbol in mod.functions)
        return original(mod, target)

    monkeypatch.setattr(codegen, "generate_module", count)
    return found


def test_other_weights_take_the_same_kernels(folder: Path, generated: list[str], tmp_path: Path) -> None:
    fusion.compile(softmax_of_columns(), threads=1)
    kernels = {name for name in generated if not name.startswith("__vmtir__")}
    assert len(kernels) == len(list(folder.glob("*.kernel"))) == 3
    generated.clear()
    module = fusion.compile(other_weights(), threads=1)
    assert generated == ["__vmtir__main"]
    anew = fusion.compile(other_weights(), threads=1, cache=False)
    assert module.explain() == anew.explain()
    module.save(tmp_path / "saved.fusion")
    for each in (module, fusion.load(tmp_path / "saved.fusion")):
        np.testing.assert_array_equal(each(X)[0], anew(X)[0])
    assert len(module.profile({"x": X}, seconds=0.01).kernels) == 3


def test_what_differs_is_generated(folder: Path, generated: list[str]) -> None:
    fusion.compile(softmax_of_columns(), threads=1)
    for different in ({"threads": 2}, {"target": "llvm -mcpu=x86-64-v3", "threads": 1}):
        generated.clear()
        fusion.compile(other_weights(), **different)
        assert len(generated) == 4
    generated.clear()
    fusion.compile(two_layers(), threads=1)
    assert generated


def test_damaged_kernels_are_generated_anew(folder: Path, generated: list[str]) -> None:
    fusion.compile(softmax_of_columns(), threads=1)
    expected = fusion.compile(other_weights(), threads=1, cache=False)(X)[0]
    entries = sorted(folder.glob("*.kernel"))
    whole = [entry.read_bytes() for entry in entries]
    spoiled = [[data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :] for data in whole] for at in (0, 40, 700, -1)]
    # And cut short, empty, or each under the name of another.
    spoiled += [[data[:-9] for data in whole], [b""] * len(whole), [*whole[1:], whole[0]]]
    for contents in spoiled:
        for entry, content in zip(entries, contents, strict=True):
            entry.write_bytes(content)
        for form in folder.glob("*.fusion"):
            form.unlink()
        generated.clear()
        np.testing.assert_array_equal(fusion.compile(other_weights(), threads=1)(X)[0], expected)
        assert len(generated) == 4
        assert [len(entry.read_bytes()) for entry in entries] == [len(data) for data in whole]


def test_a_kernel_that_has_no_text_has_no_key() -> None:
    x = te.placeholder((8,), name="x")
    func = te.create_prim_func([x, te.compute((8,), lambda i: x[i] + 1.0)])
    schedule = context.resolve(threads=1).compiler.schedule
    odd = func.with_attr("odd", tvm_ffi.convert(lambda: None))
    mod = tvm.IRModule({"plain": func, "odd": odd})
    made = ScheduleKernels(schedule, name_sources=True)(mod)
    assert [SOURCE in made[name].attrs for name in ("plain", "odd")] == [True, False]
    assert SOURCE not in ScheduleKernels(schedule)(mod)["plain"].attrs


def test_the_key_of_a_kernel(folder: Path) -> None:
    ctx = context.resolve(threads=1, cache=True)
    x = tirx.Var("x", "int64")

    def kernel(value: int, source: str) -> tirx.PrimFunc:
        return tirx.PrimFunc([x], tirx.Evaluate(tirx.IntImm("int64", value))).with_attr(SOURCE, source)

    cache = open_kernels(ctx)
    assert cache is not None
    one, two = tvm.ir.GlobalVar("one"), tvm.ir.GlobalVar("two")
    cases = [(one, kernel(1, "a")), (two, kernel(1, "a")), (one, kernel(2, "a")), (one, kernel(1, "b"))]
    keys = [cache.key(*case) for case in cases]
    assert len(set(keys)) == len(keys)
    assert cache.key(one, kernel(1, "a")) == keys[0]
    assert cache.key(one, tirx.PrimFunc([x], tirx.Evaluate(0))) is None
    assert open_kernels(context.resolve()) is None
