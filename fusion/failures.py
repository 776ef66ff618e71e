"""Defects that are worked around: a sentence for `explain()`, and the traceback in the log."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

_LENGTH = 160
_REQUEST = "please report it"
_AGAIN = "the next compilation tries again"
_log = logging.getLogger("fusion")


def report(what: str, error: BaseException) -> str:
    """Log `error` with its traceback, and return a sentence: `what` failed, why, and what the user can do."""
    sentence = f"{what}: {cause(error)}; {_REQUEST}: the log of 'fusion' has the traceback"
    _log.warning("internal error: %s", sentence, exc_info=error)
    return sentence


def passing(what: str) -> str:
    """Return a sentence for something that failed outside of the compiler and is tried again by the next
    compilation."""
    return f"{what}; {_AGAIN}"


def tells_of_defect(note: str) -> bool:
    """Return whether `note` is a sentence of `report`."""
    return _REQUEST in note


def tells_of_failure(note: str) -> bool:
    """Return whether `note` is a sentence of `report` or `passing`: another compilation may do without."""
    return tells_of_defect(note) or note.endswith(_AGAIN)


def cause(error: BaseException) -> str:
    """Return the type of `error` and the last line of its text."""
    return f"{type(error).__name__}: {last_line(error)}" if str(error).strip() else type(error).__name__


def last_line(error: BaseException) -> str:
    """Return the last line of the text of `error`, which is where TVM puts the cause; its type if there is no text."""
    return (str(error).strip().splitlines() or [type(error).__name__])[-1][:_LENGTH]


@dataclass
class Failures:
    """A log of failures that are worked around, with one sentence for each thing and cause."""

    notes: list[str] = field(default_factory=list, init=False)
    _known: set[tuple[str, str]] = field(default_factory=set, init=False)

    def add(self, what: str, error: BaseException) -> None:
        """Report a failure. `what` says what failed, and what was done instead."""
        if (what, cause(error)) not in self._known:
            self._known.add((what, cause(error)))
            self.notes.append(report(what, error))
