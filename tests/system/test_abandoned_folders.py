"""Folders for temporary files of killed processes are removed by the next one; those of living ones never."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fusion.system import abandoned_folders, file_locks
from fusion.system.abandoned_folders import held, remove_abandoned
from fusion.system.temporary_folder import temporary_folder

_HOLDS = """
import time
from fusion.system.temporary_folder import temporary_folder
with temporary_folder() as folder:
    (folder / "kernels.o").write_bytes(bytes(1000))
    print(folder, flush=True)
    time.sleep(100)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    remove_abandoned.cache_clear()
    yield tmp_path
    remove_abandoned.cache_clear()


def _holder(place: Path) -> tuple[subprocess.Popen[str], Path]:
    """Return a process that has a folder, and the folder."""
    environment = os.environ | {"TMPDIR": str(place)}
    process = subprocess.Popen([sys.executable, "-c", _HOLDS], env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_a_killed_process_leaves_nothing(place: Path) -> None:
    process, folder = _holder(place)
    with process:
        with temporary_folder():
            assert (folder / "kernels.o").exists(), "its process lives"
        process.send_signal(signal.SIGKILL)
    assert folder.exists()
    with temporary_folder():
        assert folder.exists(), "a process looks once"
    remove_abandoned.cache_clear()
    with temporary_folder() as own:
        assert [own] == list(place.iterdir())
    assert not list(place.iterdir())


def test_a_child_that_lives_on_keeps_the_folder(place: Path) -> None:
    folder = place / "fusion-0"
    folder.mkdir()
    with held(folder):
        child = os.fork()
        if not child:
            signal.pause()
    try:
        remove_abandoned(place)
        assert folder.exists()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    remove_abandoned.cache_clear()
    remove_abandoned(place)
    assert not folder.exists()


def test_what_is_no_folder_of_ours_stays(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_lock, other, elsewhere = (place / name for name in ("fusion-older", "another", "elsewhere"))
    for folder in (without_lock, other, elsewhere):
        folder.mkdir()
    for folder in (other, elsewhere):
        with held(folder):
            pass
    (place / "fusion-link").symlink_to(elsewhere)
    (place / "fusion-file").write_text("")
    before = sorted(place.rglob("*"))
    remove_abandoned(place)
    assert sorted(place.rglob("*")) == before
    foreign = place / "fusion-foreign"
    foreign.mkdir()
    with held(foreign):
        pass
    monkeypatch.setattr(abandoned_folders.os, "geteuid", lambda: os.getuid() + 1)
    remove_abandoned.cache_clear()
    remove_abandoned(place)
    assert foreign.exists()


def test_file_systems_without_locks(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(handle: int, operation: int) -> None:
        raise OSError("no locks")

    monkeypatch.setattr(file_locks.fcntl, "flock", refuse)
    with temporary_folder() as folder:
        remove_abandoned.cache_clear()
        remove_abandoned(place)
        assert folder.exists()
    assert not list(place.iterdir())
