"""Interrupts of a user that come where an exception would be lost, or would leave threads behind.

TVM calls Python: tvm_ffi hands an interrupt on as an error without a text, which the compiler would take for a defect
that it works around. And Python takes a thread for ended whose `join` is interrupted.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

Handler = Callable[[int, "FrameType | None"], None]
_ours: list[Handler] = []
"""Those in place now, the innermost last; of the main thread, which alone gets interrupts."""


@contextlib.contextmanager
def keeping_interrupts() -> Iterator[Callable[[], None]]:
    """Give what raises KeyboardInterrupt if one has come since; the end of the block, by whatever, does so too.

    Where the caller handles interrupts in another way than Python does, or in a thread that gets none, nothing is
    changed.
    """
    came = False

    def keep(number: int, frame: FrameType | None) -> None:
        nonlocal came
        came = True
        raise KeyboardInterrupt

    def check() -> None:
        if came:
            raise KeyboardInterrupt from None

    with _handling(keep):
        try:
            yield check
        finally:
            check()


@contextlib.contextmanager
def deferring_interrupts(take: Callable[[KeyboardInterrupt], None]) -> Iterator[None]:
    """Hand interrupts that come in the block to `take`, as exceptions, and go on; where `keeping_interrupts` would
    change nothing, neither does this."""
    with _handling(lambda number, frame: take(KeyboardInterrupt())):
        yield


@contextlib.contextmanager
def _handling(handler: Handler) -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    known = before is signal.default_int_handler or before in _ours
    if not known or threading.current_thread() is not threading.main_thread():
        yield
        return
    _ours.append(handler)
    signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        _ours.remove(handler)
