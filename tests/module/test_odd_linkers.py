"""A linker that never ends, writes garbage or nothing, or leaves children behind: an error when saving, in time."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

import fusion
from fusion.errors import SavedFileError
from fusion.module import linker
from tests.module import small_models

LINKERS = {
    "never ends": "sleep 1000",
    "ignores signals": "trap '' TERM INT HUP; while :; do sleep 1; done",
    "waits for input": "read line; exit 1",
    "fails and leaves a child": "sleep 30 & exit 3",
    "writes nothing": "exit 0",
    "writes garbage": 'while [ "$1" != -o ]; do shift; done; echo garbage > "$2"',
    "writes an empty file": 'while [ "$1" != -o ]; do shift; done; : > "$2"',
    "says much": "yes error | head -c 3000000 >&2; exit 1",
    "says no text": "printf '\\377\\376\\200' >&2; exit 1",
}


@pytest.mark.parametrize("name", LINKERS)
def test_a_linker_that_is_none(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model compiles and runs without a linker; what cannot be linked cannot be saved."""
    program = tmp_path / "cc"
    program.write_text(f"#!/bin/sh\n{LINKERS[name]}\n")
    program.chmod(0o755)
    monkeypatch.setenv("CC", str(program))
    monkeypatch.setattr(linker, "_PATIENCE", 1.0)
    started = time.monotonic()
    module = fusion.compile(small_models.mlp())
    x = np.ones((3, 8), np.float32)
    np.testing.assert_allclose(module(x)[0], small_models.mlp_numpy(x), rtol=1e-4, atol=1e-4)
    with pytest.raises(SavedFileError, match="linking failed"):
        module.save(tmp_path / "saved.fusion")
    assert time.monotonic() - started < 25
