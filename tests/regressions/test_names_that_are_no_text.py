"""A name whose bytes are not UTF-8, as a flipped bit leaves it, is an error of fusion."""

from __future__ import annotations

from pathlib import Path

import pytest

import fusion
from fusion.errors import FusionError
from tests.module import small_models


@pytest.mark.parametrize("bits", [0x80, 0x40, 0xFF])
def test_a_damaged_name(bits: int, tmp_path: Path) -> None:
    model = small_models.mlp()
    model.graph.node[0].op_type = "Flipped"
    data = bytearray(model.SerializeToString())
    data[data.index(b"Flipped") + 2] ^= bits
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    with pytest.raises(FusionError):
        fusion.compile(path)
