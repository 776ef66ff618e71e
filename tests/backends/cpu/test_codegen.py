"""Code generation: several object files, TVM's own list of passes for kernels with blocks, and no usable linker."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import tvm
from onnx import helper
from tvm import s_tir, tirx
from tvm.script import tirx as T
from tvm_ffi.structural import structural_walk

import fusion
from backends.cpu.codegen import generate as codegen
from backends.cpu.codegen.objects import call_across_objects
from fusion import context
from fusion.errors import SavedFileError
from fusion.module import linker
from tests.module import small_models
from tests.module.small_models import FLOAT


def chain() -> object:
    """Return a model of products of x[8, n], whose kernels differ; the first of them is called twice."""
    rng = np.random.default_rng(0)
    widths = [16, 16, 16, 24, 32, 40, 48, 56, 64]
    matrices = {
        f"m{i}": rng.standard_normal((widths[i], widths[i + 1])).astype(np.float32) / 4 for i in range(len(widths) - 1)
    }
    last = len(matrices) - 1
    nodes = [
        helper.make_node("MatMul", [f"h{i}" if i else "x", f"m{i}"], [f"h{i + 1}" if i < last else "y"])
        for i in range(len(matrices))
    ]
    return small_models.model(nodes, [("x", FLOAT, [8, 16])], [("y", FLOAT, [8, 64])], matrices)


def run(module: fusion.CompiledModule) -> np.ndarray:
    return np.asarray(module(np.random.default_rng(1).standard_normal((8, 16)).astype(np.float32))[0])


def test_kernels_in_other_objects_are_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = run(fusion.compile(chain()))
    monkeypatch.delattr("backends.cpu.backend.CpuCompiler.generate_module")  # what is used where linking fails
    module = fusion.compile(chain())
    np.testing.assert_array_equal(run(module), expected)
    module.save(str(tmp_path / "m.fusion"))
    np.testing.assert_array_equal(run(fusion.load(tmp_path / "m.fusion")), expected)


def test_each_call_of_a_kernel_gets_a_name_of_its_own() -> None:
    """TVM declares an external function anew at each call, and LLVM renames all declarations but the first."""
    @T.prim_func(private=True)
    def main(r: T.handle) -> None:
        T.call_cpacked("k", T.anylist_getitem(r, 0))
        T.call_cpacked("k", T.anylist_getitem(r, 1))

    functions, script = call_across_objects(tvm.IRModule({"__vmtir__main": main}))
    names: list[str] = []
    (body,) = (func.body for func in functions.values())
    structural_walk(body, (tvm.ir.StringImm, lambda name: names.append(str(name.value))))
    assert len(set(names)) == 2
    assert script == "".join(f'"{name}" = "__tvm_ffi_k";\n' for name in names)


def why_unlinked(module: fusion.CompiledModule) -> list[str]:
    """Return what the notes say of code that no linker made."""
    (form,) = module.specializations
    return [note for note in form.notes if "without a linker" in note]


@pytest.mark.parametrize(
    ("name", "reason"), [(None, "none was found"), ("false", "linking failed"), (__file__, "linking failed")]
)
def test_models_compile_without_a_working_linker(
    name: str | None, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    linked = fusion.compile(chain())
    assert not why_unlinked(linked)
    if name is None:
        monkeypatch.setattr("fusion.module.write_objects.find_linker", lambda: None)
    else:
        monkeypatch.setattr("shutil.which", lambda _: name)
        assert linker.find_linker() is not None
    module = fusion.compile(chain())
    np.testing.assert_array_equal(run(module), run(linked))
    (note,) = why_unlinked(module)
    assert reason in note
    assert note in module.explain()


@pytest.mark.parametrize("folder", ["missing", "full", "small files"])
def test_models_compile_where_no_temporary_file_can_be_written(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, saved = run(fusion.compile(chain())), tmp_path / "m.fusion"
    if folder == "missing":
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    elif folder == "full":
        monkeypatch.setattr("shutil.disk_usage", lambda _: shutil._ntuple_diskusage(100, 99, 1))
    else:
        monkeypatch.setattr("resource.getrlimit", lambda _: (4096, 4096))
    module = fusion.compile(chain())
    np.testing.assert_array_equal(run(module), expected)
    (note,) = why_unlinked(module)
    assert "cannot write temporary files" in note
    with pytest.raises(SavedFileError, match="cannot write temporary files"):
        module.save(saved)
    assert not saved.exists()


def test_a_module_is_not_loaded_where_no_temporary_file_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fusion.compile(chain()).save(tmp_path / "m.fusion")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with pytest.raises(SavedFileError, match="cannot write temporary files"):
        fusion.load(tmp_path / "m.fusion")


def test_objects_are_made_only_where_they_are_elf(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = run(fusion.compile(chain()))
    monkeypatch.setattr("fusion.module.write_objects.ELF", False)
    monkeypatch.delattr("backends.cpu.backend.CpuCompiler.object_writer")
    module = fusion.compile(chain())
    np.testing.assert_array_equal(run(module), expected)
    assert "not ELF" in why_unlinked(module)[0]


def test_loops_with_a_step_are_refused() -> None:
    """LLVM would end the process: its types differ."""
    data, i = tirx.decl_buffer((4,), "float32"), tirx.Var("i", "int64")
    bounds = [tirx.const(value, "int64") for value in (0, 4, 2)]
    store = tirx.BufferStore(data, tirx.const(1.0, "float32"), [i])
    loop = tirx.For(i, bounds[0], bounds[1], tirx.ForKind.SERIAL, store, None, {}, bounds[2])
    mod = tvm.IRModule({"k": tirx.PrimFunc([data], loop).with_attr("global_symbol", "k")})
    with pytest.raises(AssertionError):
        codegen.generate_module(mod, context.resolve("llvm").target)


def test_kernels_with_blocks_are_lowered() -> None:
    """Those take TVM's own list: the short one does not know blocks."""

    @T.prim_func(s_tir=True)
    def double(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")) -> None:
        for i in range(4):
            with T.sblock("y"):
                v = T.axis.spatial(4, i)
                y[v] = x[v] * T.float32(2)

    found: list[s_tir.SBlock] = []
    structural_walk(double.body, (s_tir.SBlock, found.append))
    assert found
    mod = tvm.IRModule({"double": double.with_attr("global_symbol", "double")})
    library = codegen.generate_module(mod, context.resolve("llvm").target)
    x, y = tvm.runtime.tensor(np.arange(4, dtype=np.float32)), tvm.runtime.empty((4,), "float32")
    library["double"](x, y)
    np.testing.assert_array_equal(y.numpy(), np.arange(4) * 2)


def test_each_function_of_a_kernel_aligns_its_stack_frame() -> None:
    """Where vector registers do not suffice, LLVM saves them there; in two cache lines each that takes three times as
    long, in some threads and not in others."""
    @T.prim_func
    def twice(x: T.Buffer((2, 16), "float32"), y: T.Buffer((2, 16), "float32")) -> None:
        T.func_attr({"global_symbol": "twice"})
        for i in T.parallel(2):
            for j in T.vectorized(16):
                y[i, j] = x[i, j] + x[i, j]

    target = tvm.target.Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "skylake-avx512"})
    code = codegen.generate_module(tvm.IRModule({"twice": twice}), target).inspect_source("asm")
    entry, body, *_ = code.split(".cfi_startproc")[1:]
    assert "zmm" in body
    assert all("andq\t$-64, %rsp" in part for part in (entry, body))
