"""Records of measurements on disk, which any number of processes read and write."""

from __future__ import annotations

import hashlib
import logging
import os
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from fusion.cache import DiskCache, Store, find_place
from fusion.errors import OptionError
from tuning.canonical import canonical
from tuning.record import Record, read_lines
from tuning.sqlite_file import SqliteFile

_FOLDER, _NAME = "tuning", "records.sqlite"
_VERSION = 1
_log = logging.getLogger("fusion.tuning")
_SCHEMA = """
CREATE TABLE records (
    task TEXT NOT NULL, point TEXT NOT NULL, measured_at REAL NOT NULL, line TEXT NOT NULL, PRIMARY KEY (task, point)
)
"""
_ADD = """
INSERT INTO records (task, point, measured_at, line) VALUES (?, ?, ?, ?)
ON CONFLICT (task, point) DO UPDATE SET measured_at = excluded.measured_at, line = excluded.line
WHERE (excluded.measured_at, excluded.line) > (records.measured_at, records.line)
"""


@runtime_checkable
class RecordStore(Protocol):
    """What `fusion.compile(database=...)` takes. Whatever it raises, a compilation goes on without it."""

    def find(self, keys: Sequence[str]) -> Sequence[Record]:
        """Return the records of the tasks with these keys."""
        ...

    def add(self, records: Sequence[Record]) -> None:
        """Keep records."""
        ...

    def digest(self) -> str:
        """Return a text that is another one where other records are found."""
        ...


@dataclass(frozen=True)
class Database:
    """A file of records, the newest of each point of each task.

    A line of it that is damaged costs itself only; a file that is damaged is renamed, and a new one begun, with a
    warning in the log of `fusion.tuning`. What else the system or SQLite refuses is raised, as OSError or
    sqlite3.Error, as is a file that is no database.

    Attributes:
        path: Of the file, which need not exist.
        is_own: Whether nothing but this database can be there: it is renamed where it is none of SQLite's any more.
    """

    path: Path
    is_own: bool = False

    def open(self) -> None:
        """Make the file where there is none.

        Raises:
            OSError, sqlite3.Error: It cannot be written.
        """
        self._file.write(lambda connection: 0)

    def find(self, keys: Sequence[str]) -> list[Record]:
        """See `RecordStore`."""

        def select(connection: sqlite3.Connection) -> list[str]:
            found = (connection.execute("SELECT line FROM records WHERE task = ?", (key,)) for key in keys)
            return [line for rows in found for (line,) in rows]

        wanted = set(keys)
        return [record for record in _read(self._file.read(select)) if record.task.key in wanted]

    def add(self, records: Sequence[Record]) -> None:
        """See `RecordStore`."""
        rows = [(record.task.key, canonical(record.point), record.measured_at, record.as_line()) for record in records]
        if rows:
            self._file.write(lambda connection: connection.executemany(_ADD, rows).rowcount)

    def lines(self) -> list[str]:
        """Return all records as lines, damaged ones too, in an order that is always the same."""
        select = "SELECT line FROM records ORDER BY task, point"
        return [str(line) for (line,) in self._file.read(lambda connection: list(connection.execute(select))) or ()]

    def digest(self) -> str:
        """See `RecordStore`."""
        return hashlib.sha256("\n".join(self.lines()).encode()).hexdigest()

    @cached_property
    def _file(self) -> SqliteFile:
        return SqliteFile(self.path, _SCHEMA, _VERSION, self.is_own)


def default_path(place: DiskCache) -> Path:
    """Return the path of the database of the user whose cache is at `place`."""
    return place.folder.with_name(_FOLDER) / _NAME


def default_database() -> Database | None:
    """Return that of this user; None where there is none: the cache is off, or its folder is not the user's alone."""
    place = find_place()
    if place is None:
        return None
    path = default_path(place)
    reason = Store(DiskCache(path.parent, place.most_bytes)).make()
    if reason:
        _log.info("there is no database of measurements: %s", reason)
        return None
    return Database(path, is_own=True)


def named_database(option: Any) -> RecordStore | None:
    """Return the database that an option names; None where it names none.

    Raises:
        OptionError: It is no path and no store.
    """
    if option is None or option is False:
        return None
    path = os.fspath(option) if isinstance(option, str | os.PathLike) else None
    if isinstance(path, str) and path:
        return Database(Path(os.path.abspath(os.path.expanduser(path))))
    if isinstance(option, RecordStore) and not isinstance(option, type):
        return option
    raise OptionError(
        f"database={str(option)[:100]!r} is no database of measurements",
        hint="give the path of its file, which need not exist, or False for none",
    )


def try_digest(store: RecordStore | None) -> str | None:
    """Return what tells the contents of a store from others; None where it does not say."""
    try:
        return "" if store is None else store.digest()
    except Exception as error:  # SQLite's, the system's, and whatever a store of others raises
        _log.warning("the database of measurements is not read: %s", error)
        return None


def _read(lines: Iterable[str] | None) -> Sequence[Record]:
    return read_lines(map(str, lines or ())).records
