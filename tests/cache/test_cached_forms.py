"""What is compiled once is taken from the cache, as if it had been compiled; what differs is compiled."""

from __future__ import annotations

import dataclasses
import gc
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import tvm
from onnx import TensorProto, helper
from tvm import relax

import fusion
from backends.registry import library
from fusion import context, pinned_model
from fusion.cache import DiskCache, build_versions
from fusion.cache.file_digests import FileState
from fusion.cached_forms import form_key
from fusion.context import Context
from fusion.errors import ExecutionError, ModelChangedError, UnsupportedOperatorError
from fusion.frontends import read_signature
from fusion.model_digest import ModelDigest, digest_model
from fusion.module import code_key, linker
from fusion.passes.fold_constants import FoldConstants
from fusion.pinned_model import PinnedModel
from fusion.signature import TensorSpec
from fusion.tensors import byte_view
from placement.cover.places import PlacesByOrder
from tests.module import small_models
from tests.module.small_models import FLOAT, mlp, mlp_numpy, weights

X = np.random.default_rng(7).standard_normal((3, 8)).astype(np.float32)
RELAY = """#[version = "0.0.5"]
def @main(%x: Tensor[(3, 8), float32]) -> Tensor[(3, 8), float32] {
  tanh(%x)
}
"""


def other_weights() -> onnx.ModelProto:
    """Return `mlp` with one element changed."""
    model = mlp()
    first, _ = weights()
    first = first.copy()
    first[3, 5] += 0.5
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(first, "first"))
    return model


def overridable() -> onnx.ModelProto:
    """Return `mlp` of which a caller may replace a weight."""
    model = mlp()
    model.graph.input.append(helper.make_tensor_value_info("second", FLOAT, (32, 4)))
    return model


def with_determinant() -> onnx.ModelProto:
    """Return a model of which a part runs on ONNX Runtime."""
    nodes = [helper.make_node("Relu", ["x"], ["r"], name="relu"), helper.make_node("Det", ["r"], ["y"], name="det")]
    return small_models.model(nodes, [("x", FLOAT, [3, 2, 2])], [("y", FLOAT, [3])])


def of_texts() -> onnx.ModelProto:
    """Return a model that runs on ONNX Runtime as a whole."""
    node = helper.make_node("Gather", ["x", "order"], ["y"])
    text = TensorProto.STRING
    return small_models.model([node], [("x", text, [2])], [("y", text, [2])], {"order": np.array([1, 0])})


def relax_module() -> tvm.IRModule:
    """Return `mlp` in Relax, with another `mlp` that shares nothing but the text."""
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((3, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            product = builder.emit(relax.op.matmul(x, relax.const(weights()[0])))
            result = builder.emit_output(relax.op.nn.relu(product))
        builder.emit_func_output(result)
    return builder.get()


def torch_module() -> Any:
    """Return a module with its example."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU()).eval(), (torch.from_numpy(X),)


def forms(folder: Path) -> list[Path]:
    """Return the entries of whole forms."""
    return sorted(folder.glob("*.fusion"))


KINDS: dict[str, tuple[Callable[[], Any], np.ndarray]] = {
    "onnx": (mlp, X),
    "relax": (relax_module, X),
    "relay": (lambda: RELAY, X),
    "torch": (torch_module, X),
    "part on ONNX Runtime": (with_determinant, np.arange(12, dtype=np.float32).reshape(3, 2, 2)),
    "whole on ONNX Runtime": (of_texts, np.array(["a", "b"])),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_compilation_is_none(kind: str, folder: Path, compiled: list[Any], tmp_path: Path) -> None:
    make, x = KINDS[kind]
    fresh, again = fusion.compile(make(), threads=1), fusion.compile(make(), threads=1)
    assert len(compiled) == 1
    assert (again.inputs, again.outputs, again.settings) == (fresh.inputs, fresh.outputs, fresh.settings)
    assert again.explain() == fresh.explain()
    assert repr(again) == repr(fresh)
    expected = fresh(x)
    again.save(tmp_path / "again.fusion")
    fresh.save(tmp_path / "fresh.fusion")
    assert (tmp_path / "again.fusion").read_bytes() == (tmp_path / "fresh.fusion").read_bytes()
    for module in (again, fusion.load(tmp_path / "again.fusion")):
        for found, wanted in zip(module(x), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)
    again.explain_html(tmp_path / "page.html")
    if kind != "whole on ONNX Runtime":
        assert len(again.profile([x] and {again.inputs[0].name: x}, seconds=0.01).kernels) > 0


def test_a_form_with_regions_is_kept_unless_its_library_fails(
    folder: Path, compiled: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    backends = ["onnxruntime", "cpu"]
    fresh, again = (fusion.compile(mlp(), threads=1, backends=backends) for _ in range(2))
    assert len(compiled) == 1
    assert again.placement == fresh.placement
    assert again.placement.backends == ("onnxruntime",)
    np.testing.assert_array_equal(again(X)[0], fresh(X)[0])
    assert list(folder.glob("*.opening")) == []
    (entry,) = forms(folder)
    entry.with_suffix(".opening").write_bytes(b"1")  # as a process leaves it that the opening has ended
    fusion.compile(mlp(), threads=1, backends=backends)
    assert len(compiled) == 2
    assert list(folder.glob("*.opening")) == []

    def fail(*_: object) -> None:
        raise RuntimeError("out of order")

    with monkeypatch.context() as patched:
        patched.setattr(type(library("onnxruntime")), "export", fail)
        for _ in range(2):
            module = fusion.compile(other_weights(), threads=1, backends=backends)
            assert "the next compilation tries again" in module.explain()
        assert len(compiled) == 4


def test_threads_that_compile_the_same_wait_for_the_first(folder: Path, compiled: list[Any]) -> None:
    with ThreadPoolExecutor(4) as pool:
        modules = list(pool.map(lambda _: fusion.compile(mlp(), threads=1), range(4)))
    assert len(compiled) == 1
    assert len({module(X)[0].tobytes() for module in modules}) == 1


def test_what_differs_is_compiled(folder: Path, compiled: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def outputs() -> list[np.ndarray]:
        return [
            fusion.compile(mlp(), threads=1)(X)[0],
            fusion.compile(other_weights(), threads=1)(X)[0],
            fusion.compile(mlp("n"), threads=1, shapes={"x": (3, 8)})(X)[0],
            fusion.compile(mlp("n"), threads=1, shapes={"x": (5, 8)})(np.ones((5, 8), np.float32))[0],
            fusion.compile(mlp(), threads=2)(X)[0],
            fusion.compile(mlp(), threads=1, strict=True)(X)[0],
            fusion.compile(mlp(), threads=1, precision="bf16-or-fp32")(X)[0],
        ]

    first = outputs()
    # Where the CPU has no bfloat16, the last is the first.
    made = 7 if context.resolve().compiler.machine.dot_bfloat16 else 6
    assert len(compiled) == made
    for found, wanted in zip(outputs(), first, strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert len(compiled) == made
    np.testing.assert_allclose(first[0], mlp_numpy(X), rtol=1e-5, atol=1e-5)
    assert not np.array_equal(first[0], first[1])
    other = {**build_versions.build_versions(), "sources": "changed"}
    monkeypatch.setattr(code_key, "build_versions", lambda: other)
    fusion.compile(mlp(), threads=1)
    assert len(compiled) == made + 1


COMPILER: dict[str, Any] = {
    "target": tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3"}),
    "machine": dataclasses.replace(context.resolve().compiler.machine, l2_bytes=123),
    "features": frozenset({"none"}),
    "threads": 77,
}
OPTIONS: dict[str, Any] = {
    "strict": True,
    "precision": "bf16",
    "effort": "balanced",
    "measured": "a digest",
    "skipped": ("one that is not installed",),
    "libraries_only": True,
    "model": SimpleNamespace(digest="another digest"),
    "graph_libraries": {"a library": SimpleNamespace(version="1")},
    "places": PlacesByOrder((1,)),
}


def test_every_option_is_part_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    model, ctx = ModelDigest("0", ()), context.resolve(threads=1)
    compiler: Any = ctx.compiler
    assert set(COMPILER) == {field.name for field in dataclasses.fields(compiler)}
    of_no_code = {"cache", "libraries", "database", "writer", "deadline", "opens_sizes", "to_fall_back"}
    assert set(OPTIONS) | {"compiler"} | of_no_code == {field.name for field in dataclasses.fields(Context)}
    others = [{"compiler": dataclasses.replace(compiler, **{name: value})} for name, value in COMPILER.items()]
    others += [{name: value} for name, value in OPTIONS.items()]
    others += [{"graph_libraries": {"a library": SimpleNamespace(version="2")}}]
    keys = [form_key(model, {}, ctx)]
    keys += [form_key(model, {}, dataclasses.replace(ctx, **other)) for other in others]
    keys += [form_key(ModelDigest("1", ()), {}, ctx), form_key(model, {"x": (1,)}, ctx)]
    keys += [form_key(model, {}, ctx, [TensorSpec("x", (None, 8), "float32", axes)]) for axes in ((), ("rows", ""))]
    opened = [TensorSpec("x", (None, 8), "float32", ("rows", ""))]
    keys += [form_key(model, {}, ctx, opened, {"rows": range(1, most)}) for most in (8, 9)]
    with tvm.transform.PassContext(config={"tirx.disable_vectorize": True}):
        keys.append(form_key(model, {}, ctx))
    assert len(set(keys)) == len(keys)
    moved = dataclasses.replace(ctx, cache=DiskCache(Path("elsewhere"), 1), opens_sizes=True)
    assert form_key(model, {}, moved) == keys[0]
    balanced = dataclasses.replace(ctx, effort="balanced")
    here, everywhere = form_key(model, {}, balanced), form_key(model, {}, ctx)
    monkeypatch.setattr(code_key, "cpu_model", lambda: "another")
    assert form_key(model, {}, balanced) != here
    assert form_key(model, {}, ctx) == everywhere


def test_open_shapes_and_weights_as_inputs(folder: Path, compiled: list[Any]) -> None:
    second = weights(1)[1]
    for _ in range(2):
        module = fusion.compile(mlp("n"), threads=1, wait=True, dynamic=False)
        for rows in (2, 3):
            x = X[:rows]
            np.testing.assert_allclose(module(x)[0], mlp_numpy(x), rtol=1e-5, atol=1e-5)
        assert len(module.specializations) == 2
        replaced = fusion.compile(overridable(), threads=1)
        expected = np.maximum(X @ weights()[0], 0) @ second
        np.testing.assert_allclose(replaced.run({"x": X, "second": second})["y"], expected, rtol=1e-5, atol=1e-5)
        assert [spec.name for spec in replaced.overridable] == ["second"]
        assert len(compiled) == 4
    assert len(forms(folder)) == 4


def test_forms_from_the_cache_hold_equal_weights_once(folder: Path, compiled: list[Any]) -> None:
    weight = {"w": np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)}
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    model = small_models.model([node], [("x", FLOAT, ["n", 64])], [("y", FLOAT, ["n", 64])], weight)
    for _ in range(2):
        module = fusion.compile(model, threads=1, wait=True, dynamic=False)
        for rows in (3, 5):
            x = np.ones((rows, 64), np.float32)
            np.testing.assert_allclose(module(x)[0], x @ weight["w"], rtol=1e-5, atol=1e-5)
        codes = [form.code for form in module.specializations]
        places = {byte_view(held).ctypes.data for code in codes if code for held in code.weights}
        assert len(places) == 1
        del module, codes
        gc.collect()
    assert len(compiled) == 2


def test_files_and_what_lies_beside_them(folder: Path, compiled: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    outputs = []
    for model in (mlp(), other_weights()):
        (tmp_path / "weights").unlink(missing_ok=True)
        onnx.save(model, path, save_as_external_data=True, location="weights", size_threshold=0)
        outputs += [fusion.compile(path, threads=1)(X)[0], fusion.compile(str(path), threads=1)(X)[0]]
    assert len(compiled) == 2
    np.testing.assert_array_equal(outputs[0], outputs[1])
    np.testing.assert_array_equal(outputs[2], outputs[3])
    assert not np.array_equal(outputs[0], outputs[2])


def test_a_model_that_changes_while_it_is_compiled_is_not_kept(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(mlp(), path)

    def replace(found: ModelDigest) -> ModelDigest:
        onnx.save(other_weights(), path)
        return found

    monkeypatch.setattr(pinned_model, "digest_model", lambda *model: replace(digest_model(*model)))
    with pytest.raises(ModelChangedError, match=r"model\.onnx"):
        fusion.compile(path, threads=1)
    assert not forms(folder)


def test_what_cannot_be_read_because_it_is_being_written_has_changed(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(mlp(), path)
    pinned = PinnedModel(path)

    def cut(model: Path, _: ModelDigest | None) -> object:
        model.write_bytes(b"")
        return read_signature(model)

    pinned.pin()
    with pytest.raises(ModelChangedError, match=r"model\.onnx"):
        pinned.read(cut)


@pytest.mark.parametrize("can_be_read", [True, False])
def test_what_was_cut_while_it_was_summed_up_has_changed(
    can_be_read: bool, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(mlp(), path)
    whole = [FileState.of(path)]

    def sum_up(model: Path, place: object) -> ModelDigest:
        """The first time as of a file that is cut behind the question of its state."""
        if not whole:
            return digest_model(model)
        model.write_bytes(b"")
        files = (whole.pop(),)
        if not can_be_read:
            raise OSError("it was cut")
        return dataclasses.replace(digest_model(model), files=files)

    monkeypatch.setattr("fusion.pinned_model.digest_model", sum_up)
    pinned = PinnedModel(path)
    pinned.pin()
    with pytest.raises(ModelChangedError, match=r"model\.onnx"):
        pinned.read(lambda model, _: read_signature(model))


def test_what_the_digest_of_a_model_holds() -> None:
    same = {digest_model(model).digest for model in (mlp(), mlp(), relax_module(), relax_module())}
    assert len(same) == 2
    changed = relax_module()
    changed["main"] = changed["main"].with_attr("anything", 1)
    assert digest_model(changed).digest not in same


def test_it_can_be_turned_off(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fusion.compile(mlp(), threads=1, cache=False)
    for name in ("FUSION_CACHE", "FUSION_CACHE_SIZE"):
        with monkeypatch.context() as patch:
            patch.setenv(name, "0")
            fusion.compile(mlp(), threads=1)
    assert not folder.exists()
    fusion.compile(mlp(), "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72", threads=1)
    assert not forms(folder)


def test_sources_that_changed_are_not_those_that_run(monkeypatch: pytest.MonkeyPatch) -> None:
    build_versions.build_versions.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(build_versions, "_STARTED", 0.0)
        with pytest.raises(OSError, match="has changed since"):
            build_versions.build_versions()
    assert build_versions.build_versions()["sources"]


def test_without_our_sources_nothing_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> dict[str, str]:
        raise FileNotFoundError("in no folder")

    monkeypatch.setattr(code_key, "build_versions", fail)
    np.testing.assert_allclose(fusion.compile(mlp(), threads=1)(X)[0], mlp_numpy(X), rtol=1e-5, atol=1e-5)
    assert not folder.exists()


def test_a_form_in_the_cache_needs_no_linker(
    folder: Path, compiled: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = fusion.compile(mlp(), threads=1)(X)[0]
    monkeypatch.setattr(linker, "find_linker", lambda triple="": None)
    module = fusion.compile(mlp(), threads=1)
    module.save(tmp_path / "saved.fusion")
    np.testing.assert_array_equal(fusion.load(tmp_path / "saved.fusion")(X)[0], expected)
    assert len(compiled) == 1


def test_errors_are_those_of_compiling(folder: Path) -> None:
    x = np.zeros((3, 2, 2), np.float32)
    for _ in range(2):
        assert fusion.compile(with_determinant(), threads=1)(x)[0].shape == (3,)
        with pytest.raises(UnsupportedOperatorError, match="Det"):
            fusion.compile(with_determinant(), threads=1, strict=True)
    node = helper.make_node("Gather", ["x", "at"], ["y"], name="pick")
    model = small_models.model([node], [("x", FLOAT, [3]), ("at", TensorProto.INT64, [1])], [("y", FLOAT, [1])])
    for _ in range(2):
        with pytest.raises(ExecutionError, match="pick"):
            fusion.compile(model, threads=1)(np.zeros(3, np.float32), np.array([7]))


@pytest.mark.internal_errors
def test_what_a_defect_has_changed_is_not_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(self: FoldConstants, mod: tvm.IRModule) -> tvm.IRModule:
        raise RuntimeError("a defect")

    with monkeypatch.context() as patch, caplog.at_level(logging.CRITICAL, logger="fusion"):
        patch.setattr(FoldConstants, "__call__", fail)
        assert "please report it" in fusion.compile(mlp(), threads=1).explain()
    assert not forms(folder)
    assert "please report it" not in fusion.compile(mlp(), threads=1).explain()
    assert len(forms(folder)) == 1
