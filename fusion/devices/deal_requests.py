"""Deals the requests of a stream to what runs them: each, in order, to the first that has room for it."""

from __future__ import annotations

import math
import threading
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from functools import partial

from fusion.devices.device_memory import MemoryLedger
from fusion.devices.requests import Flow, Request
from fusion.errors import ExecutionError
from fusion.system.forks import Lock
from fusion.system.interrupts import wait_for

UNDER_WAY = 2
"""Requests under way for each stage: one that it runs, and one to go on with."""


def most_under_way(flows: Sequence[Flow]) -> int:
    """Return how many requests a stream through `flows` takes before the first of them is answered: two for each stage,
    and of several flows as many again as each answers while the slowest answers the oldest, behind which all results
    wait. Where that takes three times as long as it should, the others still have something to do."""
    slowest = max(flow.seconds for flow in flows)
    several = len(flows) > 1
    return sum(
        max(1, UNDER_WAY * len(flow.stages)) + several * (math.ceil(slowest / flow.seconds) if flow.seconds else 0)
        for flow in flows
    )


class RequestDealer:
    """Begins requests in the flows that have room: one that is one stage runs one at a time, and takes the next in the
    thread of its device. What a device will take for a request is not known: by the clock of a virtual machine it may
    be 1.2 times as much as another takes for long, and several times for a moment.

    Where memories are limited, requests begin in the thread that takes the results alone, two for each stage: what it
    gave back is there for a call that it makes before it takes the next. Threads may use it at a time.
    """

    def __init__(self, flows: Iterable[Flow], ledger: MemoryLedger) -> None:
        """Memory that requests need is taken from `ledger`; who is done with one gives it back there."""
        self._ledger = ledger
        self._most = {flow: self._most_in(flow) for flow in flows}
        self._running = Counter[Flow]()
        self._waiting = deque[Request]()
        # A thread may take it again: where garbage is collected, a stream is closed that nobody holds any more.
        self._changed = threading.Condition(Lock())

    def _most_in(self, flow: Flow) -> int:
        one_at_a_time = len(flow.stages) < 2 and not self._ledger.is_limited
        return 1 if one_at_a_time else max(1, UNDER_WAY * len(flow.stages))

    def add(self, request: Request) -> None:
        """Begin `request` as soon as those before it have begun, and a flow has room for it."""
        with self._changed:
            self._waiting.append(request)
        self.deal()

    def deal(self) -> None:
        """Begin as many requests as there is room for: what was given back since may be that."""
        while (found := self._next()) is not None:
            self._begin(*found)

    def begin_first(self, request: Request) -> None:
        """Begin `request`, before which none is under way, or wait for memory and then begin it.

        Raises:
            LimitError: There was none for long: see `MemoryLedger.take`.
        """
        with self._changed:
            # What was just answered is noted after that, and the request may begin there.
            wait_for(self._changed, lambda: request.flow is not None or not self._running.total())
            if request.flow is not None:
                return
        flow = min(self._most, key=lambda each: each.seconds)
        self._ledger.take(flow, wait=True)
        with self._changed:
            self._waiting.popleft()
            self._note_begin(request, flow)
        self._begin(request, flow)

    def drop(self) -> None:
        """Begin none of the requests that wait."""
        with self._changed:
            self._waiting.clear()

    def _next(self) -> tuple[Request, Flow] | None:
        """Return the request to begin now, which has its memory, and the flow that will be the first to have answered
        one more; None where there is no request or no room."""
        with self._changed:
            if self._waiting:
                for flow in sorted(self._most, key=lambda each: (self._running[each] + 1) * each.seconds):
                    if self._running[flow] < self._most[flow] and self._ledger.take(flow, wait=False):
                        request = self._waiting.popleft()
                        self._note_begin(request, flow)
                        return request, flow
        return None

    def _note_begin(self, request: Request, flow: Flow) -> None:
        request.flow = flow
        self._running[flow] += 1

    def _begin(self, request: Request, flow: Flow) -> None:
        request.answer.add_done_callback(partial(self._note_end, flow))
        try:
            request.begin(flow)
        except Exception as error:  # in the thread of a device, where nobody else would tell it
            told = f"{type(error).__name__}: {error}"
            request.fail(ExecutionError("a request of a stream could not begin", why=told))

    def _note_end(self, flow: Flow, _: object) -> None:
        with self._changed:
            self._running[flow] -= 1
            found = None if self._ledger.is_limited else self._next()
            self._changed.notify_all()
        if found is not None:
            self._begin(*found)
            self.deal()
