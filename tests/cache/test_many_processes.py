"""Processes that share a cache: a second one compiles nothing, and those that are killed leave nothing that is used."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import fusion
from fusion.cache import Store
from tests.module.small_models import mlp

ROOT = Path(__file__).parents[2]
X = np.random.default_rng(7).standard_normal((3, 8)).astype(np.float32)
_SECOND = """
import sys
import numpy as np
import fusion
fusion.compile  # before TVM, which alone imports PyTorch
from fusion import api

def refuse(model, shapes, ctx):
    raise AssertionError("it is compiled again")

api.compile_form = refuse
np.save(sys.argv[2], fusion.compile(sys.argv[1], threads=1)(np.load(sys.argv[3]))[0])
"""


def test_a_new_process_compiles_nothing(folder: Path, tmp_path: Path) -> None:
    onnx.save(mlp(), tmp_path / "model.onnx")
    np.save(tmp_path / "x.npy", X)
    expected = fusion.compile(tmp_path / "model.onnx", threads=1)(X)[0]
    command = [sys.executable, "-c", _SECOND, *(str(tmp_path / name) for name in ("model.onnx", "y.npy", "x.npy"))]
    subprocess.run(command, check=True, cwd=ROOT, timeout=120)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), expected)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_processes_that_are_killed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    # Two of the three models fit: entries are deleted while others use them.
    monkeypatch.setenv("FUSION_CACHE_SIZE", "3M")
    seed = str(random.SystemRandom().randrange(1 << 30))
    done = subprocess.run(
        [sys.executable, "-m", "tests.cache.worker", seed], capture_output=True, text=True, cwd=ROOT, timeout=180
    )
    assert done.returncode == 0, f"seed {seed}: {done.stderr[-2000:]}"
    complete = [entry.size for entry in store.entries() if entry.path.suffix == ".fusion"]
    assert 1 <= len(complete) <= 2
    assert sum(complete) <= 3 << 20
