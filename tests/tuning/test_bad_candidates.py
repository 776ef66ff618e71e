"""Candidates that crash, hang, take all memory or write without end cost nothing but themselves."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tuning import measuring_session
from tuning.experiment import Experiment, LibraryCall, Step, Storage, View
from tuning.measuring_session import MeasuringSession, Results
from tuning.messages import Trial

SOURCE = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define KERNEL(name) int __tvm_ffi_##name(void* self, const void* arguments, int count, void* result)
KERNEL(good) { return 0; }
KERNEL(crashes) { abort(); }
KERNEL(hangs) { for (volatile int turn = 0;;) turn ^= 1; }
KERNEL(grows) {
  for (;;) {
    char* some = malloc(1 << 26);
    if (!some) abort();
    memset(some, 1, 1 << 12);
  }
}
KERNEL(writes) {
  for (int line = 0; line < 200000; ++line) { fputs("{\\"kind\\": 7}\\n", stderr); puts("{\\"kind\\": 7}"); }
  return fflush(stdout);
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kernels")
    (folder / "kernels.c").write_text(SOURCE)
    made = folder / "kernels.so"
    subprocess.run(
        [os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O0", folder / "kernels.c", "-o", made], check=True
    )
    return made


def run(library: Path, folder: Path, names: list[str]) -> Results:
    calls = tuple((LibraryCall(name, (0,)),) for name in names)
    experiment = Experiment(
        libraries=(str(library),),
        data="",
        storages=(Storage(4, filler=1),),
        tensors=(View(0, (1,), "float32"),),
        steps=(Step(0, calls, ()),),
        threads=1,
        seconds=0.2,
    )
    with MeasuringSession(folder) as session:
        results = session.run(experiment)
        assert session._process is not None
        number = session._process.pid
    with pytest.raises(ProcessLookupError):
        os.killpg(number, 0)
    return results


@pytest.mark.parametrize("bad", ["crashes", "hangs", "grows"])
def test_a_candidate_that_fails_is_told_and_nothing_is_left(
    library: Path, tmp_path: Path, bad: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring_session, "_PATIENCE_S", 5.0)
    results = run(library, tmp_path, ["good", bad, "good"])
    assert results.crashed == [Trial(0, 1)]
    assert not results.failure
    assert {times.candidate for times in results.decisions[0].times} == {0, 2}
    assert [path.name for path in tmp_path.iterdir()] == ["experiment.json"]


def test_what_a_candidate_writes_is_no_answer(library: Path, tmp_path: Path) -> None:
    results = run(library, tmp_path, ["good", "writes"])
    assert (results.crashed, results.failure) == ([], "")
    assert len(results.decisions[0].times) == 2
