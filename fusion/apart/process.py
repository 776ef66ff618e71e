"""The process that tries libraries, as seen from here."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path

from fusion.apart.questions import LibraryQuestion
from fusion.errors import ExecutionError
from fusion.system.temporary_folder import temporary_folder
from tuning.measuring_session import MeasuringSession, Results

_PATIENCE_S = 300.0
"""Without an answer: a library that compiles a whole model on a busy machine takes minutes, and one that is taken to
hang is asked for nothing more."""
_log = logging.getLogger("fusion.backends")
_COMMAND = "from fusion.apart.answer import main; main()"


class NotTriedError(ExecutionError):
    """Says why no other process could try a library, which says nothing of that."""


class OtherProcess:
    """Where libraries are asked, which starts when something is."""

    def __init__(self) -> None:
        self._kept = ExitStack()

    @cached_property
    def folder(self) -> Path:
        """For files."""
        return Path(self._kept.enter_context(temporary_folder()))

    @cached_property
    def session(self) -> MeasuringSession:
        """Who talks with it."""
        return self._kept.enter_context(MeasuringSession(self.folder, _COMMAND, patience=_PATIENCE_S))

    def ask(self, question: LibraryQuestion) -> Results:
        """Return what came of a question; a process that ends before it has begun with it is followed by another.

        Raises:
            NotTriedError: That ends, too, or lacks memory or room on a disk, or this program is no Python that could
                start one.
        """
        if getattr(sys, "frozen", False):
            raise NotTriedError("it could not be tried in another process: this program is one file, and no Python")
        try:
            with _told_of(question):
                results = self.session.run(question)
                if results.ended and not results.begun:
                    results = self.session.run(question)
        except OSError as error:
            raise NotTriedError(f"it could not be tried in another process: {error}") from error
        if results.lost or (results.ended and not results.begun):
            raise NotTriedError(f"it could not be tried in another process: {results.lost or results.failure}")
        return results

    def end(self) -> None:
        """End it, and remove the files."""
        self._kept.close()


@contextmanager
def _told_of(question: LibraryQuestion) -> Iterator[None]:
    """Warn, where the block takes long, that a question has no answer yet: nothing else is seen of a library that
    hangs."""
    timer = threading.Timer(question.silence_s, _warn, (question,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _warn(question: LibraryQuestion) -> None:
    _log.warning(
        "the backend %r was asked %s in another process %.0f s ago and has not answered; "
        "it is given up after %.0f s in which it is not kept from a CPU",
        question.library, question.asked_for, question.silence_s, _PATIENCE_S,
    )  # fmt: skip


class _Held(threading.local):
    """The process of a thread's block: it ends with the thread that started it, and is not for others therefore."""

    other: OtherProcess | None = None


_held = _Held()


@contextmanager
def asking_apart() -> Iterator[OtherProcess]:
    """Keep one process for all that this thread asks libraries in the block; it starts with the first question."""
    if _held.other is not None:
        yield _held.other
        return
    other = OtherProcess()
    try:
        _held.other = other
        yield other
    finally:
        _held.other = None
        other.end()
