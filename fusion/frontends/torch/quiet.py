"""Silences torch while it exports: what it says then is of its own insides, and errors tell what a user can change."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def quiet() -> Iterator[None]:
    """Silence torch's logs, its warnings, and what it prints: the graph of a module whose way depends on its data."""
    loggers = [logging.getLogger(name) for name in list(logging.root.manager.loggerDict) if _is_torch(name)]
    disabled = [logger.disabled for logger in loggers]
    stream = _WithoutTorch(sys.stderr)
    try:
        for logger in loggers:
            logger.disabled = True
        sys.stderr = stream
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        stream.end()
        for logger, was in zip(loggers, disabled, strict=True):
            logger.disabled = was


def _is_torch(name: str) -> bool:
    return name.partition(".")[0] == "torch"


class _WithoutTorch:
    """A stream that drops what torch's own code writes. Where threads export at a time, one may leave another's in
    place: after its end it drops nothing."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._drops = stream, True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Drop `text`, or pass it on."""
        is_torch = _is_torch(str(sys._getframe(1).f_globals.get("__name__")))
        if self._stream is not None and not (self._drops and is_torch):
            self._stream.write(text)
        return len(text)

    def end(self) -> None:
        """Put the stream back."""
        self._drops = False
        if sys.stderr is self:
            sys.stderr = self._stream
