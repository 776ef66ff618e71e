"""What the compiler reports of its own defects, which it compiles around: a test that does not look would miss them."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator


class _Collect(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.sentences: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the sentence; the traceback stays with the log's other handlers."""
        if record.name == "fusion":  # the cache has a log of its own
            self.sentences.append(record.getMessage())


@contextlib.contextmanager
def collect() -> Iterator[list[str]]:
    """Yield a list that fills with the internal errors that `fusion` logs meanwhile."""
    handler, logger = _Collect(), logging.getLogger("fusion")
    logger.addHandler(handler)
    try:
        yield handler.sentences
    finally:
        logger.removeHandler(handler)
