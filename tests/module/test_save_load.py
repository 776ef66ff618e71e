"""What is saved is what is loaded, bit for bit, from one file that other tools can open."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import tvm
from safetensors import safe_open

import fusion
from fusion.errors import SavedFileError
from fusion.module import linker
from fusion.module.archive import Archive
from fusion.module.program import KernelProgram
from fusion.module.weights_file import map_weights, write_weights
from fusion.tensors import ALIGNMENT, as_numpy, as_tensor
from tests.module import small_models

ROOT = Path(__file__).parents[2]
X = np.random.default_rng(7).standard_normal((3, 8)).astype(np.float32)


@pytest.fixture
def saved(mlp: fusion.CompiledModule, tmp_path: Path) -> Path:
    path = tmp_path / "mlp.fusion"
    mlp.save(path)
    return path


def test_a_loaded_module_computes_the_same(mlp: fusion.CompiledModule, saved: Path) -> None:
    loaded = fusion.load(saved)
    assert loaded.inputs == mlp.inputs
    assert loaded.outputs == mlp.outputs
    assert loaded.settings == mlp.settings
    assert loaded.explain() == mlp.explain()
    np.testing.assert_array_equal(loaded(X)[0], mlp(X)[0])


def test_a_loaded_module_can_be_saved_again(saved: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.fusion"
    fusion.load(saved).save(again)
    assert again.read_bytes() == saved.read_bytes()


def test_a_module_can_replace_the_file_it_was_loaded_from(saved: Path, mlp: fusion.CompiledModule) -> None:
    loaded = fusion.load(saved)
    loaded.save(saved)
    np.testing.assert_array_equal(loaded(X)[0], mlp(X)[0])
    np.testing.assert_array_equal(fusion.load(saved)(X)[0], mlp(X)[0])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems tell the mask only to who sets it")
def test_a_file_has_the_mode_that_the_mask_leaves(
    mlp: fusion.CompiledModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To read the mask, it was set to 0: what other threads wrote meanwhile was everyone's to write."""
    before = os.umask(0o027)
    try:
        with monkeypatch.context() as watched:
            watched.setattr(os, "umask", lambda mask: pytest.fail("the mask of the process was set"))
            mlp.save(tmp_path / "masked.fusion")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "masked.fusion").stat().st_mode) == 0o640


def test_running_a_saved_module_needs_neither_the_compiler_nor_other_frameworks(saved: Path) -> None:
    code = (
        "import sys, fusion, numpy as np; m = fusion.load(sys.argv[1]); m(np.ones((3, 8), np.float32));"
        "m.run({'x': np.ones((3, 8), np.float32)}); m.explain();"
        "print(*sorted({'tvm', 'torch', 'onnx', 'onnxruntime'} & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(saved)], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.split() == []
    assert done.stderr == ""


def test_members_are_stored_and_described(saved: Path) -> None:
    with zipfile.ZipFile(saved) as archive:
        assert archive.testzip() is None
        assert all(info.compress_type == zipfile.ZIP_STORED for info in archive.infolist())
        manifest = json.loads(archive.read("manifest.json"))
    assert manifest["tvm"] == tvm.__version__
    assert manifest["settings"]["features"]
    assert manifest["inputs"] == [{"name": "x", "shape": [3, 8], "dtype": "float32", "axes": []}]
    assert set(manifest["checksums"]) == {"form0/module.so", "weights.safetensors", "form0/graph.json.z"}


def test_weights_open_with_safetensors(saved: Path, tmp_path: Path, mlp: fusion.CompiledModule) -> None:
    with zipfile.ZipFile(saved) as archive:
        archive.extract("weights.safetensors", tmp_path)
    program = mlp.specializations[0].program
    assert isinstance(program, KernelProgram)
    assert program.weights
    with safe_open(tmp_path / "weights.safetensors", "numpy") as file:
        for index, weight in enumerate(program.weights):
            np.testing.assert_array_equal(file.get_tensor(f"w{index}"), as_numpy(weight))


def test_weights_are_mapped_from_the_file_and_aligned(saved: Path) -> None:
    program = fusion.load(saved).specializations[0].program
    assert isinstance(program, KernelProgram)
    maps = Path("/proc/self/maps")
    if not maps.exists():
        pytest.skip("this system does not list mappings")
    regions = [line.split() for line in maps.read_text().splitlines() if line.endswith(str(saved))]
    bounds = [tuple(int(end, 16) for end in region[0].split("-")) for region in regions]
    for weight in program.weights:
        address = weight.data_ptr()
        assert address % ALIGNMENT == 0
        assert any(low <= address < high for low, high in bounds)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "float8_e4m3fn", "int64", "uint8", "bool"])
def test_weights_of_every_dtype_survive(dtype: str, tmp_path: Path) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    arrays = [np.arange(count).astype(kind).reshape(-1, 1) for count in (1, 5, 64, 100)]
    data = write_weights([as_tensor(array) for array in arrays])
    (tmp_path / "w.safetensors").write_bytes(data)
    with safe_open(tmp_path / "w.safetensors", "numpy") as file:
        assert "w3" in file.keys()  # noqa: SIM118 -- a file is no dict
    mapped = map_weights(memoryview(data), [(number, array.shape, dtype) for number, array in enumerate(arrays)])
    for tensor, array in zip(mapped, arrays, strict=True):
        assert str(tensor.dtype) == dtype
        np.testing.assert_array_equal(as_numpy(tensor).view(np.uint8), array.view(np.uint8))


def test_members_start_at_pages(saved: Path) -> None:
    archive = Archive(saved)
    start = np.frombuffer(archive.read("weights.safetensors"), np.uint8).ctypes.data
    assert start % 4096 == 0


def test_a_failed_save_leaves_the_old_file(
    mlp: fusion.CompiledModule, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = saved.read_bytes()

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(SavedFileError, match="cannot write"):
        mlp.save(saved)
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]


def test_saving_into_a_missing_folder_says_so(mlp: fusion.CompiledModule, tmp_path: Path) -> None:
    with pytest.raises(SavedFileError, match="cannot write"):
        mlp.save(tmp_path / "missing" / "mlp.fusion")


def test_saving_in_the_place_of_a_folder_says_so(mlp: fusion.CompiledModule, tmp_path: Path) -> None:
    with pytest.raises(SavedFileError, match="cannot write") as caught:
        mlp.save(tmp_path)
    assert caught.value.why == "it is a folder"
    assert str(tmp_path / "NAME") in caught.value.hint


def test_without_a_linker_the_error_says_what_to_install(
    mlp: fusion.CompiledModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linker, "find_linker", lambda triple: None)
    monkeypatch.setattr("fusion.module.write_objects.find_linker", lambda: None)
    mlp.save(tmp_path / "mlp.fusion")  # it was linked when it was compiled
    with pytest.raises(SavedFileError, match="no linker") as caught:
        fusion.compile(small_models.mlp()).save(tmp_path / "mlp.fusion")
    assert "install" in caught.value.hint


@pytest.mark.parametrize("name", ["cc", "gcc", "clang", "ld"])
def test_any_linker_will_do(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", name)
    if linker.find_linker() is None:
        pytest.skip(f"this machine has no {name}")
    module = fusion.compile(small_models.mlp())
    module.save(tmp_path / "mlp.fusion")
    np.testing.assert_array_equal(fusion.load(tmp_path / "mlp.fusion")(X)[0], module(X)[0])
