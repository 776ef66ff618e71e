"""The table of which rule of rewriting applies where."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from bench.rules import applied, main, text
from bench.zoo import Recipe, ZooModel
from fusion import context
from fusion.rewrites.table import RULES

SILU = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2, 8] x, float[2, 8] y) => (float[2, 8] z) {
    s = Sigmoid(x)
    a = Mul(x, s)
    t = Sigmoid(y)
    b = Mul(t, y)
    z = Add(a, b)
}"""


def test_rules_are_counted_in_a_model(tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(SILU), tmp_path / "silu.onnx")
    model = ZooModel(Recipe("silu", lambda path: None, {}), tmp_path / "silu.onnx", ())
    assert applied(model, context.resolve("llvm", threads=1)) == {"silu": 2}


def test_a_row_says_which_models_a_rule_applies_in() -> None:
    lines = text({"a": {"silu": 2}, "b": {"silu": 1, "gelu": 4}}).splitlines()
    rows = {cells[0]: cells[1:] for line in lines[2:] if (cells := [cell.strip() for cell in line.split("|")[1:-1]])}
    assert rows["silu"] == ["3", "2", "a 2, b 1"]
    assert rows["gelu"] == ["4", "1", "b 4"]
    assert list(rows) == [rule.name for rule in RULES]
    assert rows["softmax"] == ["0", "0", ""]


def test_an_unknown_model_is_told_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["bench.rules", "no_such_model"])
    assert main() == 2
    assert "no_such_model" in capsys.readouterr().err
