"""Says on stderr what takes long."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_PATIENCE_S = 1.0


@contextmanager
def progress(what: str) -> Iterator[None]:
    """Print `what` once it has taken longer than a second, on a terminal with the seconds counting, and its end."""
    done, started = threading.Event(), time.perf_counter()
    ticker = threading.Thread(target=_tick, args=(what, done, started), daemon=True)
    ticker.start()
    try:
        yield
    finally:
        done.set()
        ticker.join()


def _tick(what: str, done: threading.Event, started: float) -> None:
    if done.wait(_PATIENCE_S):
        return
    terminal = sys.stderr.isatty()
    print(f"{what} ...", end="" if terminal else "\n", file=sys.stderr, flush=True)
    while not done.wait(_PATIENCE_S):
        if terminal:
            print(f"\r{what} ... {time.perf_counter() - started:.0f} s", end="", file=sys.stderr, flush=True)
    seconds = f"{time.perf_counter() - started:.1f} s"
    print(f"\r{what} ... {seconds}" if terminal else f"{what}: {seconds}", file=sys.stderr, flush=True)
