"""Notes of what may end a process: written to files of this user's cache alone, and gone with the block."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fusion.cache import DiskCache, Store, attempts
from fusion.cache.attempts import attempt

NAME = f"{0:064x}.opening"


def is_safe(folder: Path) -> bool:
    """Return what a block is told."""
    with attempt(Store(DiskCache(folder, 1000)), NAME) as safe:
        return safe


def test_a_note_that_an_ended_process_left_is_found_once(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"1")
    assert not is_safe(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert is_safe(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    folder, planted = tmp_path / "cache", tmp_path / "thesis.tex"
    folder.mkdir()
    planted.write_bytes(b"1 introduction")
    (folder / NAME).symlink_to(planted)
    assert is_safe(folder)
    assert planted.read_bytes() == b"1 introduction"


def test_what_others_may_write_to_is_not_read(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"1")
    (tmp_path / NAME).chmod(0o666)
    assert is_safe(tmp_path)
    (tmp_path / NAME).chmod(0o600)
    tmp_path.chmod(0o777)
    assert is_safe(tmp_path)
    assert (tmp_path / NAME).read_bytes() == b"1"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no such pipes")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / NAME, 0o600)
    assert is_safe(tmp_path)


def test_nothing_is_left_where_there_are_no_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "HAS_LOCKS", False)
    monkeypatch.setattr(attempts, "try_lock", lambda _: False)
    assert is_safe(tmp_path)
    assert list(tmp_path.iterdir()) == []
