"""Interrupts of a user that come where an exception would be lost, or would leave threads or locks behind.

TVM calls Python: tvm_ffi hands an interrupt on as an error without a text, which the compiler would take for a defect
that it works around. Python takes a thread for ended whose `join` is interrupted. And the lock of a `Condition`, of a
`Future` too, stays taken where an interrupt comes as it is entered: what other threads do with it then waits for ever.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent import futures
from concurrent.futures import Future, TimeoutError
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")
_signal: Any = importlib.import_module("_signal")
"""What `signal` wraps: that looks for a name of each handler it gets or returns, and is told by an exception that it
has none. To hold interrupts of a call back took 21 to 63 us by it, and takes 5 (Zen 3)."""
_TICK_S = 0.05
"""After which one who waits looks for an interrupt that is held back."""
Handler = Callable[[int, "FrameType | None"], None]
_ours: dict[Handler, int] = {}
"""Those in place now, and the main thread's number, which alone gets interrupts: in a fork another one may be that."""


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


class _Hold:
    """Interrupts of a block that are held back.

    Attributes:
        came: Whether one has come.
        is_open: Whether they are raised now.
    """

    def __init__(self) -> None:
        self.came = self.is_open = False

    def take(self, number: int, frame: FrameType | None) -> None:
        """Handle the signal."""
        if self.is_open:
            raise KeyboardInterrupt
        self.came = True


_holds: list[_Hold] = []
"""Those of the main thread, the innermost last."""


@contextlib.contextmanager
def holding_interrupts() -> Iterator[None]:
    """Hold interrupts back until the end of the block, by whatever, or until somebody waits in it by `result_of`,
    `wait_for` or `wait_until_done`; where `keeping_interrupts` would change nothing, neither does this. At the end they
    are handled as they would have been before it."""
    hold = _Hold()
    try:
        with _handling(hold.take) as is_handled:
            if is_handled:
                _holds.append(hold)
            try:
                yield
            finally:
                if is_handled:
                    _holds.remove(hold)
    finally:
        if hold.came:
            signal.raise_signal(signal.SIGINT)


@contextlib.contextmanager
def raising_interrupts() -> Iterator[None]:
    """Raise interrupts in the block where they come, for code of the caller's, though they are held back around it."""
    hold = _innermost()
    if hold is None:
        yield
        return
    _raise_held()
    hold.is_open = True
    try:
        yield
    finally:
        hold.is_open = False


def holding_in_steps(steps: Generator[T, None, None]) -> Generator[T, None, None]:
    """Yield what `steps` does, and hold interrupts back while it runs."""
    try:
        while True:
            with holding_interrupts():
                try:
                    made = next(steps)
                except StopIteration:
                    return
            yield made
            del made
    finally:
        with holding_interrupts():
            steps.close()


def result_of(future: Future[T]) -> T:
    """Return `future.result()`, or raise an interrupt that is held back."""
    while True:
        try:
            return future.result(_TICK_S)
        except TimeoutError:
            if future.done():  # meanwhile, or the error is what it ended in
                return future.result()
            _raise_held()


def wait_for(changed: threading.Condition, is_so: Callable[[], object], seconds: float = threading.TIMEOUT_MAX) -> bool:
    """Return `changed.wait_for(is_so, seconds)`, or raise an interrupt that is held back."""
    until = time.monotonic() + seconds
    while not changed.wait_for(is_so, max(0.0, min(_TICK_S, until - time.monotonic()))):
        _raise_held()
        if time.monotonic() >= until:
            return False
    return True


def wait_until_done(calls: Iterable[Future[Any]]) -> None:
    """Wait until all `calls`, none of which may be cancelled, have ended, or raise an interrupt that is held back."""
    left = set(calls)
    while left := futures.wait(left, _TICK_S).not_done:
        _raise_held()


def _innermost() -> _Hold | None:
    return _holds[-1] if _holds and threading.current_thread() is threading.main_thread() else None


def _raise_held() -> None:
    hold = _innermost()
    if hold is not None and hold.came:
        hold.came = False
        raise KeyboardInterrupt


@contextlib.contextmanager
def _handling(handler: Handler) -> Iterator[bool]:
    """Have interrupts handled by `handler` in the block, unless the caller handles them: gives which it is."""
    before = _signal.getsignal(signal.SIGINT)
    known = before is signal.default_int_handler or before in _ours
    if not known or threading.current_thread() is not threading.main_thread():
        yield False
        return
    _ours[handler] = threading.get_ident()
    _signal.signal(signal.SIGINT, handler)
    try:
        yield True
    finally:
        if _signal.getsignal(signal.SIGINT) == handler:  # else the caller's code has set its own in the block
            _signal.signal(signal.SIGINT, before)
        del _ours[handler]


def _after_fork() -> None:
    """Where another thread than the main one forked, nobody is left to look at interrupts that are held back."""
    if _ours and threading.get_ident() not in _ours.values():
        _ours.clear()
        _holds.clear()
        signal.signal(signal.SIGINT, signal.default_int_handler)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
