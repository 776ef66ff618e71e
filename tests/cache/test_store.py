"""The folder of the cache: bounded, of its user alone, and no error where it cannot be used."""

from __future__ import annotations

import errno
import io
import logging
import os
import stat
import time
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest

import fusion
from fusion.cache import DiskCache, Store, find_place
from fusion.cache import store as store_module
from fusion.cache.place import user_folder
from fusion.errors import OptionError
from tests.module.small_models import mlp, mlp_numpy

X = np.ones((3, 8), np.float32)
NAMES = [f"{index:064x}.fusion" for index in range(9)]


def put(store: Store, name: str, size: int) -> bool:
    return store.write(name, size, lambda file: file.truncate(size) and None)


def found(store: Store) -> list[str]:
    return [entry.path.name for entry in store.entries()]


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    store = Store(DiskCache(tmp_path / "cache", 1000))
    for index, name in enumerate(NAMES[:3]):
        assert put(store, name, 300)
        os.utime(tmp_path / "cache" / name, (index, index))
    with store.open(NAMES[0]) or pytest.fail("it is there"):
        pass
    assert put(store, NAMES[3], 300)
    assert sorted(found(store)) == [NAMES[0], NAMES[2], NAMES[3]]
    assert put(store, NAMES[4], 1000)
    assert found(store) == [NAMES[4]]
    assert not put(store, NAMES[5], 1001)
    assert found(store) == [NAMES[4]]


def test_what_ended_processes_leave_is_deleted_and_what_is_not_ours_stays(tmp_path: Path) -> None:
    store = Store(DiskCache(tmp_path, 1000))
    (tmp_path / "thesis.tex").write_bytes(bytes(5000))
    (tmp_path / ".part-old").write_bytes(bytes(400))
    (tmp_path / ".part-new").write_bytes(bytes(400))
    past = time.time() - 3600
    os.utime(tmp_path / ".part-old", (past, past))
    assert put(store, NAMES[0], 400)
    assert sorted(item.name for item in tmp_path.iterdir()) == [".part-new", NAMES[0], "thesis.tex"]
    assert put(store, NAMES[1], 400)  # what is being written counts
    assert sorted(found(store)) == [".part-new", NAMES[1]]
    store.clear()
    assert [item.name for item in tmp_path.iterdir()] == ["thesis.tex"]


def test_only_the_user_may_read_and_write(folder: Path) -> None:
    mask = os.umask(0)
    try:
        fusion.compile(mlp(), threads=1)
    finally:
        os.umask(mask)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(entry.stat().st_mode) for entry in folder.iterdir()} == {0o600}


def _group_may_write(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.chmod(0o770)


def _all_may_write(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.chmod(0o702)


def _another_owns(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)


REFUSED = {"others may write": _group_may_write, "others may write, all": _all_may_write, "belongs to": _another_owns}


@pytest.mark.parametrize("spoiled", ["folder", "entry"])
@pytest.mark.parametrize("reason", REFUSED)
def test_what_others_may_write_to_is_refused(
    reason: str, spoiled: str, folder: Path, compiled: list[Any], monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    store_module._warn.cache_clear()
    fusion.compile(mlp(), threads=1)
    (entry,) = folder.glob("*.fusion")
    REFUSED[reason](folder if spoiled == "folder" else entry, monkeypatch)
    with caplog.at_level(logging.WARNING, logger="fusion.cache"):
        module = fusion.compile(mlp(), threads=1)
    assert len(compiled) == 2
    assert [reason.partition(",")[0] in record.getMessage() for record in caplog.records] == [True]
    np.testing.assert_allclose(module(X)[0], mlp_numpy(X), rtol=1e-5, atol=1e-5)


def test_a_folder_that_cannot_be_made_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FUSION_CACHE", str(tmp_path / "file"))
    monkeypatch.setenv("FUSION_CACHE_SIZE", "1G")
    with caplog.at_level(logging.INFO, logger="fusion.cache"):
        module = fusion.compile(mlp(), threads=1)
    assert "Not a directory" in caplog.text
    np.testing.assert_allclose(module(X)[0], mlp_numpy(X), rtol=1e-5, atol=1e-5)


def test_a_disk_that_cannot_be_read_is_no_error(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(Store, "open", lambda self, name: Failing())
    with caplog.at_level(logging.INFO, logger="fusion.cache"):
        assert store.read(NAMES[0]) is None
    assert os.strerror(errno.EIO) in caplog.text


def test_a_user_without_a_home_has_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """No model could be compiled; with older platformdirs, it was a folder `~` where the process began."""
    for variable in ("FUSION_CACHE", "HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("FUSION_CACHE_SIZE", "1G")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as it is of a user whom the system does not know
    assert find_place() is None
    with pytest.raises(OptionError, match="no home"):
        user_folder()
    for named, is_one in (("~", False), ("~nobody/cache", False), ("/var/cache/fusion", True)):
        monkeypatch.setenv("FUSION_CACHE", named)
        assert (find_place() is not None) == is_one


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
def test_a_disk_that_takes_no_more_is_no_error(
    number: int, store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(file: BinaryIO) -> None:
        file.write(bytes(100))
        raise OSError(number, os.strerror(number))

    with caplog.at_level(logging.INFO, logger="fusion.cache"):
        assert not store.write(NAMES[0], 100, fail)
    assert os.strerror(number) in caplog.text
    assert not list(store.place.folder.iterdir())
    monkeypatch.setattr(os, "utime", lambda path: fail(BinaryIO()))
    assert put(store, NAMES[0], 100)


@pytest.mark.parametrize(
    ("text", "size"), [("12", 12), ("3K", 3072), ("1g", 1 << 30), ("2 GiB", None), ("2GiB", 2 << 30), ("-1", None)]
)
def test_sizes(text: str, size: int | None, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSION_CACHE_SIZE", text)
    if size is None:
        with pytest.raises(OptionError, match="is not a size"):
            fusion.compile(mlp())
        return
    place = find_place()
    assert place is not None
    assert place.most_bytes == size
