"""The child's side of a process that `bench.remote` drives: it answers one request at a time over a socket."""

from __future__ import annotations

import ctypes
import signal
import sys
import textwrap
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from bench.peers.engine import UnsupportedModelError

# An error becomes one line of the report; those of torch and TVM are pages.
_ERROR_LENGTH = 300
# linux/prctl.h
_PR_SET_PDEATHSIG = 1


def serve(descriptor: int, make: Callable[[], object]) -> None:
    """Answer requests `(method, arguments)`, methods of what `make` returns, with `(True, result)` or `(False, text)`
    over the inherited socket until the other end closes."""
    _die_with_parent()
    with Connection(descriptor) as connection:
        server = make()
        while True:
            try:
                name, arguments = connection.recv()
            except EOFError:
                return
            connection.send(answer(server, name, arguments))


def answer(server: object, name: str, arguments: tuple[Any, ...]) -> tuple[bool, Any]:
    """Return True and the result of the method `name`, or False and, in one line, why there is none."""
    try:
        return True, getattr(server, name)(*arguments)
    except Exception as error:
        traceback.print_exc()
        return False, _in_one_line(error)


def _in_one_line(error: Exception) -> str:
    text = str(error) if isinstance(error, UnsupportedModelError) else f"{type(error).__name__}: {error}"
    return textwrap.shorten(text, _ERROR_LENGTH, placeholder=" ...")


def _die_with_parent() -> None:
    """Ask Linux to end this process when its parent ends, even in the middle of a long compilation."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
