"""A file is replaced whole or not at all, and what a killed process leaves of it is removed by the next one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import BinaryIO

import pytest

from fusion.module.replace_file import replace_file
from fusion.system import file_locks

_WRITES = """
import sys, time
from pathlib import Path
from fusion.module.replace_file import replace_file

def write(file):
    file.write(b"half")
    file.flush()
    print("begun", flush=True)
    time.sleep(100)

replace_file(Path(sys.argv[1]), write)
"""


def writing(path: Path) -> subprocess.Popen[str]:
    """Return a process that writes `path`."""
    process = subprocess.Popen([sys.executable, "-c", _WRITES, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


def test_a_killed_process_leaves_what_the_next_one_removes(tmp_path: Path) -> None:
    path = tmp_path / "m.fusion"
    path.write_bytes(b"before")
    with writing(path) as process:
        replace_file(path, lambda file: file.write(b"meanwhile"))
        assert len(list(tmp_path.iterdir())) == 2, "the other process lives"
        process.send_signal(signal.SIGKILL)
    assert path.read_bytes() == b"meanwhile"
    replace_file(path, lambda file: file.write(b"after"))
    assert [each.name for each in tmp_path.iterdir()] == ["m.fusion"]
    assert path.read_bytes() == b"after"


def test_what_is_no_such_file_stays(tmp_path: Path) -> None:
    names = (".m.fusion.short", ".m.fusion.12345678.txt", ".other.12345678", "m.fusion.12345678")
    for name in names:
        (tmp_path / name).write_bytes(b"")
    (tmp_path / ".m.fusion.abcdefgh").mkdir()
    (tmp_path / ".m.fusion.linkedto").symlink_to(tmp_path / ".other.12345678")
    os.mkfifo(tmp_path / ".m.fusion.pipe5678")
    replace_file(tmp_path / "m.fusion", lambda file: file.write(b"x"))
    assert len(list(tmp_path.iterdir())) == len(names) + 4


def test_what_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "m.fusion"
    path.write_bytes(b"before")

    def fail(file: BinaryIO) -> None:
        file.write(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replace_file(path, fail)
    assert [each.read_bytes() for each in tmp_path.iterdir()] == [b"before"]


def test_threads_that_write_the_same_file_remove_nothing_of_each_other(tmp_path: Path) -> None:
    path, failed = tmp_path / "m.fusion", list[BaseException]()

    def write() -> None:
        try:
            for _ in range(100):
                replace_file(path, lambda file: file.write(b"whole"))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert [each.read_bytes() for each in tmp_path.iterdir()] == [b"whole"]


def test_file_systems_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(handle: int, operation: int) -> None:
        raise OSError("no locks")

    monkeypatch.setattr(file_locks.fcntl, "flock", refuse)
    (tmp_path / ".m.fusion.abcdefgh").write_bytes(b"of another")
    replace_file(tmp_path / "m.fusion", lambda file: file.write(b"x"))
    assert sorted(each.name for each in tmp_path.iterdir()) == [".m.fusion.abcdefgh", "m.fusion"]
