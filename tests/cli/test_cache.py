"""`fusion cache` shows and clears what `fusion compile` keeps."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from fusion.cli.exit_codes import USAGE
from tests.cli.commands import run, run_json
from tests.module.small_models import mlp


def test_show_and_clear(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSION_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FUSION_CACHE_SIZE", "1M")
    onnx.save(mlp(), tmp_path / "mlp.onnx")
    assert run(capsys, "compile", tmp_path / "mlp.onnx", "--threads", 1, "--no-cache")[0] == 0
    code, data = run_json(capsys, "cache")
    folder = str(tmp_path / "cache" / "compiled")
    empty = {"folder": folder, "refused": "", "models": 0, "kernels": 0, "bytes": 0, "most_bytes": 1 << 20}
    assert (code, data) == (0, empty)
    assert run(capsys, "compile", tmp_path / "mlp.onnx", "--threads", 1)[0] == 0
    _, data = run_json(capsys, "cache")
    assert (data["models"], data["kernels"]) == (1, 1)
    code, text, _ = run(capsys, "cache")
    assert (code, folder in text, f"{data['bytes'] / 1e6:.1f} MB of 1" in text) == (0, True, True)
    Path(folder).chmod(0o777)
    code, _, text = run(capsys, "cache", "clear")
    assert (code, "others may write to it" in text) == (USAGE, True)
    Path(folder).chmod(0o700)
    code, cleared = run_json(capsys, "cache", "clear")
    assert (code, cleared["deleted"], cleared["bytes"]) == (0, 2, data["bytes"])
    assert run_json(capsys, "cache")[1] == empty
    monkeypatch.setenv("FUSION_CACHE", "0")
    assert run_json(capsys, "cache", "clear") == (0, {"folder": None})
