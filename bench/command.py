"""How the programs of the bench end."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

# What a shell reports for a program that SIGPIPE ended.
_READER_GONE = 128 + signal.SIGPIPE


def run(main: Callable[[], int]) -> NoReturn:
    """Exit with what `main` returns, or quietly where nobody reads its output any more (`... | head`)."""
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more at exit (docs.python.org/3/library/signal.html#note-on-sigpipe).
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = _READER_GONE
    sys.exit(code)
