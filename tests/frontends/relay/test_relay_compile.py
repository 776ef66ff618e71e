"""Relay modules through `fusion.compile`: open dimensions, what errors show, and what is loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fusion
from fusion.errors import InvalidModelError, ShapeError, UnsupportedOperatorError

OPEN = "def @main(%x: Tensor[(?, 3), float32], %w: Tensor[(3), float32]){} {{ nn.relu(add(%x, %w)) }}"
WEIGHTS = {"w": np.array([1, -1, 0.5], np.float32)}


def test_open_dimensions_are_bound_by_shapes_or_by_calls() -> None:
    typed = OPEN.format(" -> Tensor[(?, 3), float32]")
    lazy = fusion.compile(typed, params=WEIGHTS)
    assert lazy.outputs[0].shape == (None, 3)
    for rows in (2, 5):
        x = np.random.default_rng(rows).standard_normal((rows, 3)).astype(np.float32)
        wanted = np.maximum(x + WEIGHTS["w"], 0)
        np.testing.assert_array_equal(lazy(x)[0], wanted)
        fixed = fusion.compile(OPEN.format(""), params=WEIGHTS, shapes={"x": (rows, 3)})
        np.testing.assert_array_equal(fixed(x)[0], wanted)
    with pytest.raises(ShapeError, match="contradicts"):
        fusion.compile(typed, params=WEIGHTS, shapes={"x": (2, 4)})


def test_open_dimensions_need_a_result_type() -> None:
    with pytest.raises(InvalidModelError, match="does not say what it returns"):
        fusion.compile(OPEN.format(""), params=WEIGHTS)


def test_errors_of_the_translation_show_the_line(tmp_path: Path) -> None:
    path = tmp_path / "m.relay"
    path.write_text("def @main(%x: Tensor[(2, 3), float32]) {\n  reshape(%x, newshape=[5])\n}")
    with pytest.raises((UnsupportedOperatorError, InvalidModelError)) as caught:
        fusion.compile(path)
    words, line, caret = caught.value.where.split("\n")
    assert words.endswith(f"line 2, column 3 of {path}")
    assert line.index("reshape") == caret.index("^")


def test_the_parser_is_loaded_only_for_relay(tmp_path: Path) -> None:
    code = "import fusion, sys; fusion.compile; fusion.load; import fusion.frontends; print('lark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
