"""The thread of a device: bound to its CPUs if it has any here, it runs jobs in order of their priority."""

from __future__ import annotations

import atexit
import contextlib
import copy
import heapq
import itertools
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TypeVar

from fusion.devices.targets import DeviceTarget, RpcServer
from fusion.errors import FusionError, ResourceError
from fusion.system.forks import Lock
from fusion.system.interrupts import holding_interrupts, result_of, wait_for

T = TypeVar("T")
Priority = tuple[int, int]
Job = Callable[[FusionError | None], None]
"""Is called in the thread, with the reason if that cannot run on its CPUs; raises nothing."""


class DeviceThread:
    """Runs jobs while somebody uses it; it begins with the first user, and ends some time after the last."""

    def __init__(self, device: DeviceTarget) -> None:
        self.device = device
        self._cpus = set(device.cpus)
        self._jobs: list[tuple[Priority, int, Job]] = []
        self._numbers = itertools.count()
        self._users = 0
        self._is_busy = False
        self._ends = 0.0
        self._thread: threading.Thread | None = None
        lock = Lock(self._forget)
        self._changed, self._settled = threading.Condition(lock), threading.Condition(lock)
        _all.add(self)

    def enter(self) -> None:
        """Note a user, who has to leave.

        Raises:
            ResourceError: The system lets this process start no thread.
        """
        with self._changed:
            if self._thread is None:
                thread = threading.Thread(target=self._work, name=f"fusion {self.device.name}", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:
                    raise ResourceError(
                        f"the thread of the device {self.device.name!r} cannot be started",
                        why=str(error),
                        hint="raise the limits (ulimit -a)",
                    ) from error
                self._thread = thread
            self._users += 1
            self._settled.notify_all()

    def leave(self, linger_s: float) -> threading.Thread | None:
        """Note that a user is done. The thread of the last one ends when it was idle for so long; where that is 0, it
        is returned, for `wait_for_end`."""
        with self._changed:
            self._users -= 1
            self._ends = time.monotonic() + linger_s
            self._changed.notify_all()
            self._settled.notify_all()
            return self._thread if self._users == 0 and linger_s == 0 else None

    def wait_for_end(self, thread: threading.Thread | None) -> None:
        """Wait until the thread that `leave` returned, if any, has ended, or somebody uses it again."""
        # In a device's own thread garbage may be collected, and a stream closed that nobody holds any more.
        if thread is None or thread is threading.current_thread():
            return
        with self._changed:
            wait_for(
                self._settled, lambda: self._thread is not thread or self._users or self._ends > time.monotonic()
            )
            has_ended = self._thread is not thread
        if has_ended:
            thread.join()

    def retire(self) -> None:
        """Let the thread wait for no more users; it ends once those that there are have left."""
        with self._changed:
            self._ends = 0.0
            self._changed.notify_all()

    def end(self) -> None:
        """End the thread, as the process does: what it has not begun is dropped."""
        with self._changed:
            self._users, self._ends, thread = 0, 0.0, self._thread
            self._jobs.clear()
            self._changed.notify_all()
        if thread is not None:
            thread.join()

    def submit(self, priority: Priority, job: Job) -> None:
        """Have the thread run `job`, before those of a greater priority; only users may."""
        with self._changed:
            heapq.heappush(self._jobs, (priority, next(self._numbers), job))
            self._changed.notify_all()

    def borrow(self) -> bool:
        """Return whether the device has nothing to do, and is the calling thread's until `give_back` then: to wake the
        device's own thread and to be woken by it took 0.3 ms of a call (Emerald Rapids).

        The main thread, which a user may interrupt, gets no server: what that answers to a call which was interrupted
        would be there for the next.
        """
        if isinstance(self.device, RpcServer) and threading.current_thread() is threading.main_thread():
            return False
        with self._changed:
            if self._is_busy or self._jobs:
                return False
            self._is_busy = True
            return True

    def give_back(self) -> None:
        """Let the thread run what was submitted since `borrow`."""
        with self._changed:
            self._is_busy = False
            if self._jobs:
                self._changed.notify_all()

    @contextlib.contextmanager
    def bound(self) -> Iterator[None]:
        """Have the calling thread, which has borrowed the device, bound to the CPUs in the block.

        Raises:
            ResourceError: The process may not use them any more.
        """
        before = os.sched_getaffinity(0)
        if before == self._cpus:  # a caller that is bound like this anyway
            yield
            return
        try:
            if failure := self._bind():
                raise failure
            yield
        finally:
            with contextlib.suppress(OSError):  # the process may not use some of them any more
                os.sched_setaffinity(0, before)

    def run_here(self, _: Priority, job: Job) -> None:
        """Run `job` in the calling thread, which has borrowed the device, bound to the CPUs meanwhile."""
        try:
            with self.bound():
                job(None)
        except ResourceError as failure:  # not of the job, which raises nothing
            job(failure)

    def run(self, call: Callable[[], T]) -> T:
        """Return what `call` returns in the thread, or raise what it raises."""
        answer: Future[T] = Future()

        def job(failure: FusionError | None) -> None:
            try:
                if failure is not None:
                    raise copy.copy(failure)  # each raise adds to the traceback of what it raises
                answer.set_result(call())
            except BaseException as error:  # the caller gets it
                answer.set_exception(error)

        with holding_interrupts():
            self.enter()
            try:
                self.submit((0, 0), job)
                return result_of(answer)
            finally:
                self.wait_for_end(self.leave(0.0))

    def _forget(self) -> None:
        """In a forked process the thread is not there, nor those that use it."""
        self._thread, self._users, self._is_busy = None, 0, False
        self._jobs.clear()

    def _work(self) -> None:
        failure = self._bind()
        while True:
            job = self._next()
            if job is None:
                return
            job(failure)
            del job  # which holds the tensors of a request
            with self._changed:
                self._is_busy = False

    def _next(self) -> Job | None:
        """Return the next job; None when the thread is to end, which it then does."""
        with self._changed:
            while self._is_busy or not self._jobs:
                left = self._ends - time.monotonic()
                if self._users == 0 and left <= 0:
                    self._thread = None
                    self._settled.notify_all()
                    return None
                self._changed.wait(None if self._users else left)
            self._is_busy = True
            return heapq.heappop(self._jobs)[2]

    def _bind(self) -> FusionError | None:
        try:
            if self.device.cpus:
                os.sched_setaffinity(0, self.device.cpus)
        except OSError as error:
            return ResourceError(
                f"the thread of the device {self.device.name!r} cannot be bound to its CPUs",
                why=f"{error.strerror}: this process may not use them any more",
                hint="compile the model again, for CPUs that it may use",
            )
        return None


_all: weakref.WeakSet[DeviceThread] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    """A stream that nobody closed is closed when Python's threads do not run any more, and would wait for them."""
    for thread in list(_all):
        thread.end()
