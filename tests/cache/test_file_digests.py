"""A large file is read once, until it changes."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest

import fusion
from fusion import model_digest
from fusion.cache import file_digests
from fusion.cache.file_digests import FileState, sum_up
from fusion.cache.place import DiskCache
from tests.cache.test_cached_forms import other_weights
from tests.module.small_models import mlp

X = np.random.default_rng(7).standard_normal((3, 8)).astype(np.float32)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DiskCache:
    """An empty cache; all files are large."""
    monkeypatch.setattr(file_digests, "_LEAST_BYTES", 1)
    return DiskCache(tmp_path / "digests", 1 << 20)


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files count as written to long ago."""
    monkeypatch.setattr(file_digests, "_SETTLED_NS", 0)


def test_it_is_read_once(place: DiskCache, settled: None, tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.write_bytes(b"one")
    read: list[Path] = []

    def text(path: Path) -> str:
        read.append(path)
        return path.read_text()

    assert [sum_up(FileState.of(path), text, place) for _ in range(3)] == ["one"] * 3
    assert len(read) == 1
    path.write_bytes(b"two")
    assert sum_up(FileState.of(path), text, place) == "two"
    other = tmp_path / "other"
    other.write_bytes(b"ten")
    os.utime(other, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    os.replace(other, path)
    assert sum_up(FileState.of(path), text, place) == "ten"
    assert sum_up(FileState.of(path), text, None) == "ten"
    assert len(read) == 4


def test_what_was_just_written_is_not_kept(place: DiskCache, tmp_path: Path) -> None:
    """It may be written to once more at what the system calls the same time."""
    path = tmp_path / "model"
    path.write_bytes(b"one")
    assert sum_up(FileState.of(path), Path.read_text, place) == "one"
    assert not place.folder.exists()


def test_what_changes_while_it_is_read_is_not_kept(place: DiskCache, settled: None, tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.write_bytes(b"one")

    def text(path: Path) -> str:
        found = path.read_text()
        path.write_bytes(b"three")
        return found

    assert sum_up(FileState.of(path), text, place) == "one"
    assert not place.folder.exists()


@pytest.mark.usefixtures("place", "settled")
def test_a_model_is_not_read_again(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(mlp(), path)
    read: list[Path] = []
    original = model_digest._read
    monkeypatch.setattr(model_digest, "_read", lambda path, size: read.append(path) or original(path, size=size))
    first, again = (fusion.compile(path, threads=1)(X)[0] for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert len(read) == 1
    assert len(list(folder.glob("*.digest"))) == 1
    onnx.save(other_weights(), path)
    changed = fusion.compile(path, threads=1)(X)[0]
    assert not np.array_equal(changed, first)
    assert len(read) == 2
