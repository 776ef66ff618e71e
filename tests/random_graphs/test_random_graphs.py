"""Random graphs against ONNX Runtime; `python -m tests.random_graphs` checks 2,000."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.random_graphs.check import differences


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs_are_right(seed: int, tmp_path: Path) -> None:
    assert differences(seed, tmp_path / "model.onnx") == []
