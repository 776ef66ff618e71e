"""`pickle` and `copy` go through the saved form; `repr` says what a module is."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

import fusion
from fusion.errors import InputError, SavedFileError
from fusion.module import linker
from fusion.module.program import KernelProgram
from tests.module import small_models

ROOT = Path(__file__).parents[2]
X = np.random.default_rng(7).standard_normal((3, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def dynamic() -> fusion.CompiledModule:
    module = fusion.compile(small_models.mlp("rows"), wait=True, dynamic=False)
    module(X)
    return module


def test_an_unpickled_module_is_the_saved_one(mlp: fusion.CompiledModule, tmp_path: Path) -> None:
    data = pickle.dumps(mlp)
    mlp.save(tmp_path / "mlp.fusion")
    assert (tmp_path / "mlp.fusion").read_bytes() in data
    again = pickle.loads(data)
    np.testing.assert_array_equal(again(X)[0], mlp(X)[0])
    assert (again.inputs, again.outputs, again.explain()) == (mlp.inputs, mlp.outputs, mlp.explain())
    assert pickle.dumps(again) == data


def test_a_module_goes_to_another_process_without_the_compiler(mlp: fusion.CompiledModule, tmp_path: Path) -> None:
    (tmp_path / "m.pickle").write_bytes(pickle.dumps(mlp))
    code = (
        "import sys, pickle, numpy; m = pickle.load(open(sys.argv[1], 'rb'));"
        f"print(m(numpy.array({X.tolist()}, 'float32'))[0].tolist(), 'tvm' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning", "-c", code, str(tmp_path / "m.pickle")],
        capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    assert done.stdout.strip() == f"{mlp(X)[0].tolist()} False"


def test_workers_take_a_module_along(mlp: fusion.CompiledModule) -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        np.testing.assert_array_equal(pool.submit(mlp, X).result()[0], mlp(X)[0])


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy])
def test_copies_run_apart(duplicate: object, mlp: fusion.CompiledModule) -> None:
    assert callable(duplicate)
    other = duplicate({"model": mlp})["model"] if duplicate is copy.deepcopy else duplicate(mlp)
    assert other is not mlp
    programs = [module.specializations[0].program for module in (mlp, other)]
    arenas, of_the_other = [program.arenas for program in programs if isinstance(program, KernelProgram)]
    taken = arenas.take()  # as by a run of the one that is under way
    assert of_the_other.take() is not taken
    arenas.give(taken)
    np.testing.assert_array_equal(other(X)[0], mlp(X)[0])


def test_a_copy_of_a_dynamic_module_keeps_its_forms_and_goes_on(dynamic: fusion.CompiledModule) -> None:
    other = copy.deepcopy(dynamic)
    assert len(other.specializations) == 1
    assert other(X[:2])[0].shape == (2, 4)
    assert (len(other.specializations), len(dynamic.specializations)) == (2, 1)


def test_an_unpickled_dynamic_module_has_the_forms_it_had(dynamic: fusion.CompiledModule) -> None:
    other = pickle.loads(pickle.dumps(dynamic))
    np.testing.assert_array_equal(other(X)[0], dynamic(X)[0])
    with pytest.raises(InputError, match="no compiled form"):
        other(X[:2])


def test_a_module_without_a_form_can_be_copied_and_not_pickled() -> None:
    module = fusion.compile(small_models.mlp("rows"), dynamic=False)
    assert copy.copy(module).dynamic
    with pytest.raises(SavedFileError, match="not been compiled for any input shape"):
        pickle.dumps(module)


def test_what_has_no_form_for_all_sizes_is_to_be_called_before_it_is_saved() -> None:
    model = small_models.mlp("rows")
    model.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(SavedFileError) as caught:
        pickle.dumps(fusion.compile(model))
    assert "no form for all sizes: the rank of an input is open" in caught.value.why
    assert "call it once with each shape" in caught.value.hint


def test_without_a_linker_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linker, "find_linker", lambda *_: None)
    monkeypatch.setattr("fusion.module.write_objects.find_linker", lambda: None)
    module = fusion.compile(small_models.mlp())
    for attempt in (pickle.dumps, copy.deepcopy):
        with pytest.raises(SavedFileError, match="linker"):
            attempt(module)


def test_a_damaged_pickle_is_an_error(mlp: fusion.CompiledModule) -> None:
    restore, (data,) = mlp.__reduce__()
    for damaged in (b"", data[:100], data[: len(data) // 2], data[:-200] + bytes(200)):
        with pytest.raises(SavedFileError, match="the pickled module"):
            restore(damaged)


def test_repr_says_what_a_module_is(mlp: fusion.CompiledModule, dynamic: fusion.CompiledModule) -> None:
    assert repr(mlp).startswith("<CompiledModule (x float32[3, 8]) -> (y float32[3, 4]); ")
    assert f"{mlp.settings.threads} thread" in repr(mlp)
    assert "1 kernel, 0 nodes on ONNX Runtime>" in repr(mlp)
    assert "(x float32[rows, 8]) -> (y float32[rows, 4])" in repr(dynamic)
    assert repr(dynamic).endswith("1 form so far>")
    assert all(len(repr(module).splitlines()) <= 2 for module in (mlp, dynamic))
