"""The database of measurements: many processes, damage, full and read-only disks."""

from __future__ import annotations

import logging
import os
import random
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from fusion.errors import OptionError
from tests.tuning.records import HERE, record, task
from tuning import database as database_module
from tuning.database import Database, default_database, named_database
from tuning.sqlite_file import SqliteFile

ROOT = Path(__file__).parents[2]


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(tmp_path / "folder" / "records.sqlite")


def test_what_is_added_is_found(database: Database) -> None:
    asked = task("a")
    assert (database.find([asked.key]), database.lines()) == ([], [])
    assert not database.path.parent.exists(), "reading makes nothing"
    made = [record(asked, 1), record(asked, 2), record(task("b"), 1)]
    database.add(made)
    assert sorted(database.find([asked.key]), key=lambda found: found.point["chunks"]) == made[:2]
    assert {path.name for path in database.path.parent.iterdir()} == {"records.sqlite"}


def test_the_newest_of_a_point_stays_in_whatever_order_they_come(tmp_path: Path) -> None:
    asked = task("a")
    made = [record(asked, 1, seconds=seconds, measured_at=when) for seconds, when in ((3e-3, 5), (1e-3, 7), (2e-3, 7))]
    for order in ([0, 1, 2], [2, 1, 0], [1, 0, 2]):
        database = Database(tmp_path / "-".join(map(str, order)))
        for index in order:
            database.add([made[index]])
        assert database.find([asked.key]) == [made[2]]
        assert database.digest() == Database(tmp_path / "0-1-2").digest()


def test_records_of_another_place_are_of_another_task(database: Database) -> None:
    here = task("a")
    database.add([record(task("a", replace(HERE, **change))) for change in ({"cpu": "b"}, {"versions": {"tvm": "2"}})])  # type: ignore[arg-type]
    assert database.find([here.key]) == []
    assert len(database.lines()) == 2


def test_a_damaged_row_costs_itself_only(database: Database) -> None:
    asked = task("a")
    made = [record(asked, chunks) for chunks in range(4)]
    database.add(made)
    with sqlite3.connect(database.path) as connection:
        connection.execute("UPDATE records SET line = substr(line, 9) WHERE point LIKE '%:1,%'")
        connection.execute("UPDATE records SET line = CAST(x'ff00fe' AS TEXT) WHERE point LIKE '%:2,%'")
    connection.close()
    found = database.find([asked.key])
    assert sorted(each.point["chunks"] for each in found) == [0, 3]
    assert len(database.lines()) == 4


@pytest.mark.parametrize("spoil", ["text", "header", "empty page"])
def test_a_damaged_file_is_renamed_with_a_warning(
    spoil: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    database = Database(tmp_path / "records.sqlite", is_own=spoil != "empty page")
    database.add([record(task(str(index))) for index in range(200)])
    data = bytearray(database.path.read_bytes())
    if spoil == "text":
        data = bytearray(b"this is no database " * 99)
    elif spoil == "header":
        data[:16] = bytes(16)
    else:
        data[4096:] = bytes(len(data) - 4096)
    database.path.write_bytes(data)
    with caplog.at_level(logging.WARNING, logger="fusion.tuning"):
        database.add([record(task("new"))])
    assert [entry.getMessage().count("is damaged") for entry in caplog.records] == [1]
    assert len(database.find([task("new").key])) == 1
    aside = database.path.with_name(f"{database.path.name}.damaged")
    assert aside.read_bytes() == data


def test_a_database_of_something_else_stays_as_it_is(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "photos") as connection:
        connection.execute("CREATE TABLE photos (path TEXT)")
    connection.close()
    before = (tmp_path / "photos").read_bytes()
    database = Database(tmp_path / "photos")
    for act in (lambda: database.find(["key"]), lambda: database.add([record(task("a"))]), database.digest):
        with pytest.raises(OSError, match="is no database of version 1"):
            act()
    assert (tmp_path / "photos").read_bytes() == before


def test_a_file_that_is_no_database_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"weights " * 99)
    database = Database(tmp_path / "model.onnx")
    for act in (lambda: database.find(["key"]), lambda: database.add([record(task("a"))]), database.digest):
        with pytest.raises(OSError, match="is no database"):
            act()
    assert (tmp_path / "model.onnx").read_bytes() == b"weights " * 99


def test_an_empty_file_is_filled(tmp_path: Path) -> None:
    (tmp_path / "records").touch()
    database = Database(tmp_path / "records")
    assert database.lines() == []
    database.add([record(task("a"))])
    assert len(database.lines()) == 1


def test_a_log_without_its_database_is_no_part_of_a_new_one(database: Database) -> None:
    """A process that is killed leaves it, and the database is deleted by hand."""
    log = database.path.with_name(f"{database.path.name}-wal")
    database.add([record(task("a"))])
    reader = sqlite3.connect(database.path)
    reader.execute("SELECT line FROM records").fetchall()
    database.add([record(task(str(index))) for index in range(50)])
    left = log.read_bytes()
    reader.close()
    database.path.unlink()
    log.write_bytes(left)
    assert left
    database.add([record(task("new"))])
    assert database.lines() == [record(task("new")).as_line()]


def test_a_full_disk_loses_nothing_that_was_there(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    database.add([record(task("a"))])
    connect = SqliteFile._connect

    def full(self: SqliteFile, mode: str) -> sqlite3.Connection:
        connection = connect(self, mode)
        connection.execute("PRAGMA max_page_count = 8")
        return connection

    with monkeypatch.context() as patch:
        patch.setattr(SqliteFile, "_connect", full)
        with pytest.raises(sqlite3.OperationalError, match="full"):
            database.add([record(task(str(index))) for index in range(500)])
    assert len(database.lines()) == 1, "all of it or nothing"
    database.add([record(task("b"))])
    assert len(database.lines()) == 2


def test_a_folder_that_is_read_only_is_read(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    database.add([record(task("a"))])
    connect = SqliteFile._connect

    def refuse(self: SqliteFile, mode: str) -> sqlite3.Connection:
        if mode == "mode=rw":
            raise sqlite3.OperationalError("unable to open database file")
        return connect(self, mode)

    monkeypatch.setattr(SqliteFile, "_connect", refuse)
    with pytest.raises(sqlite3.OperationalError):
        database.lines()  # others may write to it
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert len(database.lines()) == 1
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        database.add([record(task("b"))])


def test_threads_write_at_a_time(database: Database) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda index: database.add([record(task(str(index)))]), range(80)))
    assert len(database.lines()) == 80


def run_writers(path: Path, *options: object) -> str:
    command = [sys.executable, "-m", "bench.tuning.writers", str(path), *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=240)
    assert done.returncode == 0, f"{options}: {done.stdout[-1000:]} {done.stderr[-2000:]}"
    return done.stdout


def test_four_processes_write_a_thousand_records_each(database: Database) -> None:
    run_writers(database.path, "--writers", 4, "--records", 1000)
    assert len(database.lines()) == 4000
    assert len({line for line in database.lines()}) == 4000


def test_processes_that_are_killed_lose_nothing_that_was_committed(database: Database) -> None:
    seed = random.SystemRandom().randrange(1 << 30)
    assert "8 killed" in run_writers(database.path, "--kill", 8, "--seed", seed), f"seed {seed}"


def test_the_default_is_in_the_user_s_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_database() is None
    monkeypatch.setenv("FUSION_CACHE_SIZE", "1G")
    monkeypatch.setenv("FUSION_CACHE", str(tmp_path))
    assert default_database() == Database(tmp_path / "tuning" / "records.sqlite", is_own=True)
    (tmp_path / "tuning").chmod(0o777)
    assert default_database() is None
    monkeypatch.setenv("FUSION_CACHE", "off")
    assert default_database() is None


@pytest.mark.parametrize("option", [True, 7, "", b"path", [], Database])
def test_what_is_no_database_is_an_error(option: object) -> None:
    with pytest.raises(OptionError, match="no database of measurements"):
        named_database(option)


def test_paths_and_stores_are_databases(tmp_path: Path) -> None:
    assert named_database(None) is None
    assert named_database(False) is None
    assert named_database(tmp_path / "a") == Database(tmp_path / "a") == named_database(str(tmp_path / "a"))
    store = Database(tmp_path / "b")
    assert named_database(store) is store
    assert database_module.try_digest(store) == store.digest()
