"""Files compiled here for a Cortex-A72 give the right results there."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import fusion
from fusion.module import linker
from tests.aarch64 import emulator
from tests.module import small_models
from tests.targets import judge, zoo_model

pytestmark = [
    pytest.mark.skipif(bool(emulator.missing()), reason=emulator.missing()),
    pytest.mark.skipif(
        linker.find_linker("aarch64-linux-gnu") is None,
        reason="no linker for aarch64 (Debian: apt install gcc-aarch64-linux-gnu)",
    ),
]


@pytest.mark.parametrize("name", ["bert_tiny", "ppocr_cls", "squeezenet", "shufflenet", "silero_vad"])
def test_zoo(name: str, tmp_path: Path) -> None:
    model = zoo_model(name)
    module = fusion.compile(str(model.path), emulator.TARGET, shapes=dict(model.shapes), threads=2, strict=True)
    module.save(tmp_path / "a.fusion")
    feeds = model.inputs(0)
    judge(model, feeds, emulator.run(tmp_path / "a.fusion", feeds))


@pytest.mark.parametrize("name", ["aarch64-linux-gnu-gcc", "ld.lld", "aarch64-linux-gnu-ld"])
def test_any_linker_will_do(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"this machine has no {name}")
    monkeypatch.setattr(linker, "find_linker", lambda triple: path)
    fusion.compile(small_models.mlp(), emulator.TARGET, threads=1).save(tmp_path / "mlp.fusion")
    x = np.random.default_rng(3).standard_normal((3, 8)).astype(np.float32)
    outputs = emulator.run(tmp_path / "mlp.fusion", {"x": x})
    np.testing.assert_allclose(outputs["y"], small_models.mlp_numpy(x), rtol=1e-5, atol=1e-5)


def test_a_file_for_another_machine_is_refused_there(tmp_path: Path) -> None:
    fusion.compile(small_models.mlp()).save(tmp_path / "x86.fusion")
    done = emulator.call("-c", "import sys, fusion; fusion.load(sys.argv[1])", str(tmp_path / "x86.fusion"))
    assert "[F501] the module was compiled for" in done.stderr


def test_features_that_the_cpu_lacks_are_named(tmp_path: Path) -> None:
    newer = "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-v1"
    fusion.compile(small_models.mlp(), newer).save(tmp_path / "v1.fusion")
    done = emulator.call("-c", "import sys, fusion; fusion.load(sys.argv[1])", str(tmp_path / "v1.fusion"))
    assert "this CPU lacks features the module was compiled for: bf16, dotprod" in done.stderr
