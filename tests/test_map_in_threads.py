"""Calls on all CPUs: in order, ended by the first exception, also where the system starts no thread."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

import fusion
from fusion.cpus import allowed_cpus
from fusion.map_in_threads import map_in_threads
from tests.module import small_models


@pytest.fixture(params=["threads", "no threads"])
def _threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    if request.param == "no threads":
        monkeypatch.setattr(threading.Thread, "start", refuse)


@pytest.mark.usefixtures("_threads")
def test_results_are_in_order() -> None:
    assert map_in_threads(lambda n: n * n, range(100)) == [n * n for n in range(100)]
    assert map_in_threads(str, []) == []


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_an_exception_ends_it(kind: type[BaseException]) -> None:
    begun: list[int] = []

    def fail(n: int) -> None:
        begun.append(n)
        time.sleep(0.01)
        raise kind(n)

    with pytest.raises(kind):
        map_in_threads(fail, range(1000))
    assert len(begun) <= allowed_cpus()


@pytest.mark.usefixtures("_threads")
def test_models_compile_and_are_saved(tmp_path: object) -> None:
    compiled = fusion.compile(small_models.mlp(), threads=1, cache=False)
    assert not any("defect" in note or "linker" in note for note in compiled.specializations[0].notes)
    compiled.save(f"{tmp_path}/saved.fusion")
    x = np.ones((3, 8), np.float32)
    np.testing.assert_array_equal(fusion.load(f"{tmp_path}/saved.fusion")(x)[0], compiled(x)[0])
