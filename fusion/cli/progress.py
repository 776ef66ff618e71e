"""Says on stderr what takes long."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_PATIENCE_S = 1.0
_ERASE = "\033[K"
"""Of a terminal: what is behind the cursor in its line."""


@contextmanager
def progress(what: str, now: Callable[[], str] = str) -> Iterator[None]:
    """Print `what` once it has taken longer than a second, on a terminal with the seconds counting, and its end.

    `now` returns the stage that it is in, which is shown on a terminal; elsewhere each is a line once it is seen.
    """
    done, started = threading.Event(), time.perf_counter()
    show = _count if sys.stderr.isatty() else _list
    ticker = threading.Thread(target=show, args=(what, now, done, started), daemon=True)
    ticker.start()
    try:
        yield
    finally:
        done.set()
        ticker.join()


def _count(what: str, now: Callable[[], str], done: threading.Event, started: float) -> None:
    """Keep one line of a terminal up to date."""
    while not done.wait(_PATIENCE_S):
        stage = now()
        _print(f"\r{what} ... {time.perf_counter() - started:.0f} s{stage and f', {stage}'}{_ERASE}", end="")
    seconds = time.perf_counter() - started
    if seconds >= _PATIENCE_S:
        _print(f"\r{what} ... {seconds:.1f} s{_ERASE}")


def _list(what: str, now: Callable[[], str], done: threading.Event, started: float) -> None:
    """Print a line for each stage that is seen."""
    said = None
    while not done.wait(_PATIENCE_S):
        stage = now()
        if stage != said:
            _print(f"{what} ...{stage and f' {stage}'}")
            said = stage
    seconds = time.perf_counter() - started
    if seconds >= _PATIENCE_S:
        _print(f"{what}: {seconds:.1f} s")


def _print(text: str, end: str = "\n") -> None:
    print(text, end=end, file=sys.stderr, flush=True)
