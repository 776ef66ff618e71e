"""A file of SQLite in WAL mode that any number of processes open, and that is made anew where it is damaged."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from fusion.system.file_locks import HAS_LOCKS, wait_for_lock

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]
_BUSY_SECONDS = 10.0
"""How long to wait for another process that writes, which takes milliseconds."""
_COMPANIONS = ("", "-wal", "-shm")
"""What SQLite puts behind the name of a database for its files."""
_MAGIC = b"SQLite format 3\0"
_log = logging.getLogger("fusion.tuning")


class ForeignFileError(OSError):
    """The file is no database, one of something else, or of another version of fusion."""


@dataclass(frozen=True)
class SqliteFile:
    """A database.

    Attributes:
        path: Of the file, which need not exist yet.
        schema: Statements that make its tables.
        version: Of the schema.
        is_own: Whether what is there can only be this database: it is renamed where it is none of SQLite's any more.
            What stands at a name that somebody gave may be anything, and is left alone.
    """

    path: Path
    schema: str
    version: int
    is_own: bool = False

    def read(self, work: Work[T]) -> T | None:
        """Return what `work` makes of a connection; None where there is no file.

        Raises:
            OSError, sqlite3.Error: The system or SQLite refuses.
        """
        return self._unless_damaged(work) if self._is_there() else None

    def write(self, work: Work[T]) -> T:
        """Return what `work` makes of a connection, in one transaction, in a file that is made where there is none.

        Raises:
            OSError, sqlite3.Error: The system or SQLite refuses; then nothing of it is written.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)

        def in_transaction(connection: sqlite3.Connection) -> T:
            connection.execute("BEGIN IMMEDIATE")
            result = work(connection)
            connection.execute("COMMIT")
            return result

        for _ in range(2):
            if not self._is_there():
                self._make()
            found = self._unless_damaged(in_transaction)
            if found is not None:
                return found
        raise ForeignFileError(f"{self.path} is damaged as soon as it is made")

    def _is_there(self) -> bool:
        """Return whether there is a file with anything in it: a full disk leaves empty ones."""
        return self.path.exists() and self.path.stat().st_size > 0

    def _unless_damaged(self, work: Work[T]) -> T | None:
        """Return what `work` makes of the file; None where that was damaged, and is set aside."""
        number = self.path.stat().st_ino
        try:
            with closing(self._open()) as connection:
                return work(connection)
        except sqlite3.DatabaseError as error:
            if type(error) is not sqlite3.DatabaseError:  # what it refuses otherwise has classes of its own
                raise
            self._set_aside(number, str(error))
            return None

    def _open(self) -> sqlite3.Connection:
        try:
            return self._connect("mode=rw")
        except sqlite3.OperationalError:
            if os.access(self.path.parent, os.W_OK):
                raise
            # A folder that is read-only has no place for what WAL takes beside the file, and nobody writes to it.
            return self._connect("mode=ro&immutable=1")

    def _connect(self, mode: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{self.path.resolve().as_uri()}?{mode}", uri=True, timeout=_BUSY_SECONDS, isolation_level=None
        )
        try:
            connection.text_factory = lambda data: data.decode(errors="replace")  # of a damaged row
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA synchronous = NORMAL")  # a process that is killed loses nothing it has committed
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version != self.version:
                raise ForeignFileError(f"{self.path} is no database of version {self.version}, but of {version}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _make(self) -> None:
        """Make the file under another name: it is whole when it has its own."""
        with self._alone():
            if self._is_there():
                return
            made = self.path.with_name(f"{self.path.name}.part")
            for end in _COMPANIONS:  # of a process that was killed here
                Path(f"{made}{end}").unlink(missing_ok=True)
            with closing(sqlite3.connect(made)) as connection:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.executescript(f"{self.schema}; PRAGMA user_version = {self.version}")
            for end in _COMPANIONS[1:]:  # of a file that is gone: SQLite would read them into the new one
                Path(f"{self.path}{end}").unlink(missing_ok=True)
            os.replace(made, self.path)

    def _set_aside(self, number: int, why: str) -> None:
        """Rename the file with this number of the file system, which is damaged, unless another process has."""
        with self._alone():
            if not self.path.exists() or self.path.stat().st_ino != number:
                return
            if not self.is_own and not self._begins_as_one():
                raise ForeignFileError(f"{self.path} is no database")
            aside = self.path.with_name(f"{self.path.name}.damaged")
            for end in reversed(_COMPANIONS):
                with suppress(FileNotFoundError):
                    os.replace(f"{self.path}{end}", f"{aside}{end}")
            _log.warning("the database %s is damaged (%s): it is %s now, and a new one is begun", self.path, why, aside)

    def _begins_as_one(self) -> bool:
        with self.path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other processes from making and renaming the file."""
        if not HAS_LOCKS:  # such a system has one user at a time
            yield
            return
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            wait_for_lock(folder)
            yield
        finally:
            os.close(folder)
