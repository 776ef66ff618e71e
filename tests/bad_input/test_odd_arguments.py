"""Whatever is given to the functions of fusion, what comes out is a result or a FusionError that is no defect."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fusion
from fusion.errors import FusionError, OptionError, ShapeError
from fusion.module.manifest import from_fields
from fusion.options import read_shapes
from tests.module import small_models


class _Raises:
    """An array whose own code fails."""

    def __array__(self, *arguments: object, **options: object) -> np.ndarray:
        raise RuntimeError("no")

    def __dlpack__(self, *arguments: object, **options: object) -> object:
        raise RuntimeError("no")

    def __dlpack_device__(self) -> tuple[int, int]:
        raise RuntimeError("no")


class _Mapping(dict):  # type: ignore[type-arg]
    def __getitem__(self, name: object) -> object:
        raise RuntimeError("no")


ODD: list[Any] = [
    5, 2.5, True, "2", b"x", [], {}, (), np.int64(2), np.array(2), np.array([1, 2]), float("nan"), -1, 0, 1 << 70,
    object(), _Raises(), "\0", "a\ud800", [None], ["cpu", 5], {"x": 5}, {5: (1,)}, "x" * 5000,
]  # fmt: skip
X = np.ones((3, 8), np.float32)


def _typed(call: Callable[[], object]) -> None:
    """Make a call, which may fail as fusion says."""
    try:
        call()
    except FusionError as error:
        if error.code == "F901":
            raise


@pytest.fixture(scope="module")
def module() -> fusion.CompiledModule:
    """Return a module with known shapes."""
    return fusion.compile(small_models.mlp())


@pytest.fixture(scope="module")
def dynamic() -> fusion.CompiledModule:
    """Return a module with an open one."""
    made = fusion.compile(small_models.mlp("n"), wait=True)
    made(X)
    return made


@pytest.mark.parametrize("value", ODD, ids=range(len(ODD)))
@pytest.mark.parametrize("option", ["effort", "precision", "backends", "shapes", "target", "strict", "params"])
def test_options_of_compile(option: str, value: object) -> None:
    _typed(lambda: fusion.compile(small_models.mlp(3), **{option: value}))


@pytest.mark.parametrize("value", [0, -1, 1025, 2.5, "2", True, [], float("nan"), 1 << 70, np.array([1, 2])])
def test_threads_that_are_no_number_of_threads(value: object) -> None:
    with pytest.raises(OptionError, match="threads"):
        fusion.compile(small_models.mlp(), threads=value)  # type: ignore[arg-type]


def test_threads_of_numpy() -> None:
    assert fusion.compile(small_models.mlp(), threads=np.int64(1)).settings.threads == 1  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "shape",
    [(1.0, 8), (True, 8), ("1", 8), (None, 8), "38", b"38", 5, None, (-1, 8), (1 << 70, 8), _Raises(), {1.5: 2}],
    ids=range(12),
)
def test_what_is_no_shape(shape: object) -> None:
    with pytest.raises(ShapeError):
        read_shapes({"x": shape})


def test_shapes_of_numpy() -> None:
    assert read_shapes({"x": np.array([3, 8]), "y": (np.int32(1), 2), "z": iter([4])}) == {
        "x": (3, 8), "y": (1, 2), "z": (4,),
    }  # fmt: skip


@pytest.mark.parametrize("value", ODD, ids=range(len(ODD)))
def test_what_is_no_model_and_no_path(
    value: object, module: fusion.CompiledModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.html"
    calls: list[Callable[[], object]] = [
        lambda: fusion.compile(value),
        lambda: fusion.load(value),  # type: ignore[arg-type]
        lambda: fusion.load("saved.fusion", verify=value),  # type: ignore[arg-type]
        lambda: fusion.convert(small_models.mlp(), value),  # type: ignore[arg-type]
        lambda: fusion.convert(small_models.mlp(), "m.py", shapes=value),  # type: ignore[arg-type]
        lambda: module.save(value),  # type: ignore[arg-type]
        lambda: module.explain_html(value),  # type: ignore[arg-type]
        lambda: module.explain_html(page, title=value),  # type: ignore[arg-type]
        lambda: module.explain_html(page, profile=value),  # type: ignore[arg-type]
        lambda: module.run(value),  # type: ignore[arg-type]
    ]
    for call in calls:
        _typed(call)
    if not (isinstance(value, int | float | np.integer) and 0 <= value < 10):
        with pytest.raises(OptionError):
            module.profile(seconds=value)  # type: ignore[arg-type]


ARRAYS: list[Any] = [
    None, 5, "x", X.tolist(), object(), _Raises(), X.astype(object), X.astype(">f4"), X.T.copy().T, X[:, ::-1],
    np.lib.stride_tricks.as_strided(X, (3, 8), (0, 0)), np.lib.stride_tricks.as_strided(X, (3, 1 << 40), (0, 0)),
    np.float32(1), np.array("a"), X.astype("M8[s]"), X.astype("c8"), np.zeros((3, 8), [("a", "f4")]), np.ma.array(X),
    memoryview(X), bytearray(96), X.astype("f2"), np.broadcast_to(np.float32(1), (3, 8)), {}, [],
]  # fmt: skip


@pytest.mark.parametrize("value", ARRAYS, ids=range(len(ARRAYS)))
def test_what_is_given_as_an_input(
    value: object, module: fusion.CompiledModule, dynamic: fusion.CompiledModule
) -> None:
    for made in (module, dynamic):
        _typed(lambda made=made: made.run({"x": value}))  # type: ignore[misc]
        _typed(lambda made=made: made(value))  # type: ignore[misc]


def test_arrays_that_lie_oddly_give_the_same(module: fusion.CompiledModule) -> None:
    expected = module(X)[0]
    frozen = X.copy()
    frozen.flags.writeable = False
    for array in (X.T.copy().T, X[::-1], np.broadcast_to(np.float32(1), (3, 8)), frozen, np.ma.array(X)):
        np.testing.assert_array_equal(module(array)[0], expected)


@pytest.mark.parametrize("inputs", [None, [], "x", {"y": X}, {5: X}, _Mapping(x=X), {"x": X, "z": X}, iter([])])
def test_what_is_no_dict_of_inputs(inputs: Any, module: fusion.CompiledModule) -> None:
    with pytest.raises(fusion.errors.InputError):
        module.run(inputs)


def _places(value: object, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if before:
        yield before
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from _places(inner, (*before, key))


def test_an_edited_manifest(module: fusion.CompiledModule, tmp_path: Path) -> None:
    """Every field is taken out, and of every other type, huge and negative."""
    path = tmp_path / "m.fusion"
    module.save(path)
    with zipfile.ZipFile(path) as archive:
        base = json.loads(archive.read("manifest.json"))
    values: list[Any] = [None, -1, 1 << 40, 1 << 70, "", "x", [], {}, 1.5, True, [-1], [[]], float("nan")]
    for place in list(_places(base)):
        for value in [KeyError, *values]:
            fields = copy.deepcopy(base)
            holder = fields
            for key in place[:-1]:
                holder = holder[key]
            if value is KeyError:
                del holder[place[-1]]
            else:
                holder[place[-1]] = value
            with contextlib.suppress(ValueError):  # of which `load` makes an error
                from_fields(json.loads(json.dumps(fields)))


def _run(script: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    source = textwrap.dedent(script)
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", source], capture_output=True, text=True, check=False, timeout=120,
        env={**os.environ, **(environment or {})},
    )  # fmt: skip


def test_more_threads_than_the_memory_has_room_for() -> None:
    done = _run("""
        import resource
        import fusion
        from tests.module import small_models
        resource.setrlimit(resource.RLIMIT_AS, (6_000_000 << 10, 6_000_000 << 10))
        try:
            fusion.compile(small_models.mlp(), threads=1024)
        except fusion.FusionError as error:
            print(error.code)
    """)
    assert (done.returncode, done.stdout) == (0, "F502\n"), done.stderr


def test_numbers_of_threads_in_the_environment() -> None:
    rubbish = {"TVM_NUM_THREADS": "-5x", "OMP_NUM_THREADS": "99999999999", "TVM_BIND_THREADS": "?"}
    done = _run("""
        import fusion, numpy
        from tests.module import small_models
        print(fusion.compile(small_models.mlp())(numpy.ones((3, 8), numpy.float32))[0].shape)
    """, rubbish)  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "(3, 4)\n"), done.stderr
