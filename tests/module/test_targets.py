"""Compiling for other CPUs: narrower ones this machine runs too, and those of which it can only save the code."""

from __future__ import annotations

import stat
import struct
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from onnx import helper
from tvm_ffi import get_global_func

import fusion
from backends.cpu import machine, target
from backends.host_features import features_of
from fusion import context
from fusion.errors import SavedFileError, ShapeError, TargetError
from fusion.module import linker
from fusion.module.cpu_features import host_architecture
from tests.module import small_models
from tests.targets import AVX2, judge, runs_here, zoo_model

pytestmark = pytest.mark.optimised
FOREIGN = "riscv64" if host_architecture() == "aarch64" else "aarch64"
TARGET = f"llvm -mtriple={FOREIGN}-linux-gnu"
X = np.ones((3, 8), np.float32)
EM_AARCH64, EM_RISCV = 183, 243


@pytest.mark.skipif(not runs_here(AVX2), reason="this CPU lacks AVX2")
@pytest.mark.parametrize("name", ["bert_tiny", "ppocr_cls", "squeezenet", "shufflenet", "silero_vad"])
def test_zoo_on_avx2(name: str) -> None:
    model = zoo_model(name)
    module = fusion.compile(str(model.path), AVX2, shapes=dict(model.shapes), threads=2, strict=True)
    feeds = model.inputs(0)
    judge(model, feeds, module.run(feeds))


@pytest.fixture(scope="module")
def foreign() -> fusion.CompiledModule:
    return fusion.compile(small_models.mlp(), TARGET, threads=1)


def test_a_module_for_another_architecture_does_not_run_here(foreign: fusion.CompiledModule) -> None:
    for call in (lambda: foreign(X), lambda: foreign.run({"x": X}), foreign.profile):
        with pytest.raises(TargetError, match=f"compiled for {FOREIGN} linux and this machine is") as caught:
            call()
        assert "load it on a machine of its kind" in caught.value.hint
    assert f"({FOREIGN}), 1 thread" in foreign.explain()
    assert "matmul" in foreign.explain()


def test_its_file_has_code_of_that_architecture_and_is_refused_here(
    foreign: fusion.CompiledModule, tmp_path: Path
) -> None:
    if linker.find_linker(f"{FOREIGN}-linux-gnu") is None:
        pytest.skip(f"there is no linker for {FOREIGN}")
    foreign.save(tmp_path / "f.fusion")
    with zipfile.ZipFile(tmp_path / "f.fusion") as archive:
        library = archive.read("form0/module.so")
    assert struct.unpack_from("<H", library, 18) == ({"aarch64": EM_AARCH64, "riscv64": EM_RISCV}[FOREIGN],)
    with pytest.raises(TargetError, match=f"compiled for {FOREIGN}"):
        fusion.load(tmp_path / "f.fusion")


def test_code_with_instructions_that_this_cpu_lacks_is_saved_and_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fusion.module.settings.missing_features", lambda features: ["avx9"])
    module = fusion.compile(small_models.mlp())
    module.save(tmp_path / "m.fusion")
    with pytest.raises(TargetError, match="lacks features the module was compiled for: avx9"):
        module(X)
    monkeypatch.undo()
    np.testing.assert_allclose(fusion.load(tmp_path / "m.fusion")(X)[0], small_models.mlp_numpy(X), rtol=1e-5)


def test_open_dimensions_must_be_given() -> None:
    with pytest.raises(ShapeError, match="shape of input 'x' is not known") as caught:
        fusion.compile(small_models.mlp("rows"), TARGET)
    assert f"compiled for {FOREIGN}" in caught.value.why
    assert fusion.compile(small_models.mlp("rows"), TARGET, shapes={"x": (2, 8)}).inputs[0].shape == (2, 8)


def test_a_model_that_is_wholly_a_fallback_does_not_run_here_either() -> None:
    nodes = [helper.make_node("StringNormalizer", ["x"], ["y"])]
    text: list[int | str] = [2]
    model = small_models.model(nodes, [("x", onnx.TensorProto.STRING, text)], [("y", onnx.TensorProto.STRING, text)])
    with pytest.raises(TargetError, match=f"compiled for {FOREIGN}"):
        fusion.compile(model, TARGET)(np.array(["a", "b"], object))


def test_without_a_linker_for_the_target_the_error_says_what_to_install(
    foreign: fusion.CompiledModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(SavedFileError, match=f"no linker for {FOREIGN}-linux-gnu") as caught:
        foreign.save(tmp_path / "f.fusion")
    assert f"{FOREIGN}-linux-gnu-gcc, ld.lld, {FOREIGN}-linux-gnu-ld" in caught.value.why
    assert f"apt install gcc-{FOREIGN}-linux-gnu" in caught.value.hint


def executable(path: Path, machine: str = "") -> str:
    path.write_text(f"#!/bin/sh\necho {machine}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_which_linker_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    triples = ("arm64be-linux-gnu", "arm64be-unknown-linux-gnu")
    assert [linker.find_linker(triple) for triple in triples] == [None, None]
    lld = executable(tmp_path / "ld.lld")
    assert [linker.find_linker(triple) for triple in triples] == [lld, lld]
    gcc = executable(tmp_path / "arm64be-linux-gnu-gcc")
    assert [linker.find_linker(triple) for triple in triples] == [gcc, gcc]
    monkeypatch.setenv("CC", executable(tmp_path / "mine", "x86_64-linux-gnu"))
    assert linker.find_linker(triples[0]) == gcc
    monkeypatch.setenv("CC", executable(tmp_path / "mine", "arm64be-linux-gnu"))
    assert linker.find_linker(triples[0]) == str(tmp_path / "mine")


def test_a_target_has_its_own_vectors_and_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of this machine is read for another: a target gives the same code wherever it is compiled."""
    monkeypatch.setattr(machine, "_cache_bytes", lambda index, default: 1)
    assert context.resolve().compiler.machine.l2_bytes == 1
    arm = context.resolve("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72").compiler.machine
    assert arm == machine.Machine(4, 32, 32 << 10, 1 << 20, 0, l1_ways=2)
    haswell = context.resolve("llvm -mtriple=x86_64-linux-gnu -mcpu=haswell").compiler.machine
    assert haswell == machine.Machine(8, 16, 32 << 10, 1 << 20, 16 << 20, dot_pairs=True)


def test_the_sets_of_this_machine_come_round_after_its_own_span(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 48 KiB in sets of 12 lines after 4 KiB, as of 32 KiB in sets of eight."""
    told = {"size": "48K", "ways_of_associativity": "12"}
    monkeypatch.setattr(machine, "_told", lambda index, what: told[what])
    here = context.resolve().compiler.machine
    assert (here.l1_bytes, here.l1_ways, here.l1_span) == (48 << 10, 12, 4096)
    monkeypatch.setattr(machine, "_told", lambda index, what: "")
    assert context.resolve().compiler.machine.l1_span == 4096


def test_a_target_of_tvm_that_names_no_cpu_is_this_machine() -> None:
    assert target.is_host(target.resolve_target(dict(tvm.target.Target("llvm").export())))


def test_a_cpu_like_its_model_is_the_one_that_servers_write_records_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(target, "differing_features", lambda cpu, here: [])
    named = context.resolve(f"llvm -mcpu={target.host_cpu()}").compiler.target
    assert str(target.resolve_target({"kind": "llvm"})) == str(named)


def test_features_that_a_hypervisor_hides_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    here = get_global_func("tvm.codegen.llvm.GetHostCPUFeatures")()
    shown = next(name for name in ("fma", "fp-armv8", "d") if here.get(name, False))
    functions = {"tvm.codegen.llvm.GetHostCPUFeatures": lambda: {**here, shown: False}}
    monkeypatch.setattr(target.tvm_ffi, "get_global_func", lambda name: functions.get(name) or get_global_func(name))
    assert shown not in features_of(target.resolve_target({"kind": "llvm"}))
    assert shown in features_of(target.resolve_target({"kind": "llvm", "mattr": [f"+{shown}"]}))
    assert shown in features_of(target.resolve_target({"kind": "llvm", "mcpu": target.host_cpu()}))


def test_features_that_the_model_of_a_cpu_lacks_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a model that LLVM does not know, or that a hypervisor makes up."""
    here = context.resolve().compiler.target
    oldest = {"x86_64": "x86-64", "aarch64": "generic"}[target.architecture_of(here)]
    known = {name for name, has in get_global_func("tvm.codegen.llvm.GetHostCPUFeatures")().items() if has}
    monkeypatch.setattr(target, "host_cpu", lambda: oldest)
    assert features_of(target.resolve_target({"kind": "llvm"})) >= known
    assert not features_of(target.resolve_target({"kind": "llvm", "mcpu": oldest})) >= known


def test_systems_whose_files_fusion_cannot_link_are_refused() -> None:
    with pytest.raises(TargetError, match="does not compile for aarch64-pc-windows-msvc"):
        fusion.compile(small_models.mlp(), "llvm -mtriple=aarch64-pc-windows-msvc")
