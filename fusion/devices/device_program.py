"""Runs a model on several devices: one request by the plan for latency, a stream of them by that for throughput."""

from __future__ import annotations

import contextlib
import itertools
import os
import weakref
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from fusion.devices.deal_requests import RequestDealer, most_under_way
from fusion.devices.device_memory import MemoryLedger
from fusion.devices.device_plans import DevicePlans
from fusion.devices.device_thread import DeviceThread
from fusion.devices.requests import Flow, Request
from fusion.devices.rpc_session import RpcSession
from fusion.errors import FusionError, ResourceError
from fusion.module.input_slot import check_array, to_array
from fusion.signature import TensorSpec
from fusion.system.interrupts import holding_in_steps, holding_interrupts, raising_interrupts, result_of

_LINGER_S = 5.0
"""So long after a call its threads wait for another: to start one takes longer than to wake it."""


class DeviceProgram:
    """A model that is ready to run on several devices. Threads may call it at a time."""

    def __init__(
        self,
        inputs: tuple[TensorSpec, ...],
        once: Flow,
        many: tuple[Flow, ...],
        plans: DevicePlans,
        sessions: Sequence[RpcSession] = (),
    ) -> None:
        """`once` is for single requests, `many` are what those of streams are dealt to, as `plans` say. With the
        program threads end that wait for calls, and `sessions`, so that the servers serve others."""
        self.inputs, self.once, self.many, self.plans = inputs, once, many, plans
        threads = tuple(dict.fromkeys(thread for flow in (once, *many) for thread in flow.threads))
        weakref.finalize(self, _end_with, threads, sessions)
        self._numbers = itertools.count()
        self._ledger = MemoryLedger((once, *many))

    @property
    def most_under_way(self) -> int:
        """Requests that a stream takes before the first of them is answered."""
        return most_under_way(self.many)

    def run(self, arrays: Sequence[Any]) -> tuple[np.ndarray, ...]:
        """See `Program.run`; the error of a stage names it and its device."""
        values = self._checked(arrays)
        with holding_interrupts(), self._ledger.held(self.once):
            return run_once(self.once, values, next(self._numbers))

    def stream(self, items: Iterator[Sequence[Any]]) -> Generator[tuple[np.ndarray, ...], None, None]:
        """Yield the outputs for each of `items`, the arrays of a request, in order.

        An error comes in the place of a result, and is the end: that of a stage names it and its device, and says which
        requests were under way and have no result. To close the generator waits for the stages that are running.
        """
        return holding_in_steps(self._results(items))

    def _results(self, items: Iterator[Sequence[Any]]) -> Generator[tuple[np.ndarray, ...], None, None]:
        process, under_way, failure = os.getpid(), deque[Request](), None
        dealer = RequestDealer(self.many, self._ledger)
        with self._giving_back(under_way, process), _using(self.many, 0.0):
            try:
                for answered in itertools.count():
                    for _ in self._turns(under_way) if failure is None else ():
                        try:
                            with raising_interrupts():
                                item = next(items)
                            under_way.append(Request(next(self._numbers), self._checked(item)))
                        except Exception as error:  # the last is StopIteration
                            failure = error
                            break
                        dealer.add(under_way[-1])
                    if not under_way:
                        break
                    if under_way[0].flow is None:
                        dealer.begin_first(under_way[0])
                    try:
                        result = result_of(under_way[0].answer)
                    except FusionError as error:
                        raise _with_lost(error, answered, len(under_way)) from error.__cause__
                    self._give_back(under_way.popleft())
                    yield result
                    del result
                    _check_process(process)
                    dealer.deal()
            finally:
                if os.getpid() == process:
                    dealer.drop()
                    _cancel(under_way, process)
        if failure is not None and not isinstance(failure, StopIteration):
            raise failure

    def _turns(self, under_way: Sequence[Request]) -> Iterator[None]:
        """Yield for each item that is to be taken now: all that there is room for, but one where the next result is
        there, as they may come slowly."""
        for taken in range(self.most_under_way - len(under_way)):
            if taken and under_way[0].answer.done():
                return
            yield

    @contextlib.contextmanager
    def _giving_back(self, under_way: Iterable[Request], process: int) -> Iterator[None]:
        """Give back the memory of the requests that are under way at the end, when no stage of theirs runs."""
        try:
            yield
        finally:
            if os.getpid() == process:
                for request in under_way:
                    self._give_back(request)

    def _give_back(self, request: Request) -> None:
        if request.flow is not None:
            self._ledger.give(request.flow)

    def _checked(self, arrays: Sequence[Any]) -> list[np.ndarray]:
        values = [to_array(value, spec) for value, spec in zip(arrays, self.inputs, strict=True)]
        for value, spec in zip(values, self.inputs, strict=True):
            check_array(value, spec)
        return values


def run_once(flow: Flow, values: Sequence[np.ndarray], number: int = 0) -> tuple[np.ndarray, ...]:
    """Return the results of one request; of requests under way, devices prefer that with the least number. On one
    device that is idle it runs in the calling thread."""
    if len(flow.stages) == 1 and flow.threads[0].borrow():
        try:
            if flow.is_whole:
                return flow.run_whole(values)
            return Request(number, values, DeviceThread.run_here).begin(flow).answer.result()
        finally:
            flow.threads[0].give_back()
    process = os.getpid()
    with _using((flow,), _LINGER_S):
        request = Request(number, values)
        try:
            return result_of(request.begin(flow).answer)
        finally:
            _cancel([request], process)


def _end_with(threads: Sequence[DeviceThread], sessions: Sequence[RpcSession]) -> None:
    for thread in threads:
        thread.retire()
    for session in sessions:
        session.close("the module that used it is gone")


@contextlib.contextmanager
def _using(flows: Sequence[Flow], linger_s: float) -> Iterator[None]:
    """Have the threads of flows, and let those end that nobody uses `linger_s` after the block."""
    process, threads = os.getpid(), list[DeviceThread]()
    try:
        for thread in dict.fromkeys(thread for flow in flows for thread in flow.threads):
            thread.enter()
            threads.append(thread)
        yield
    finally:
        # All are left before one is joined, of which an interrupt may be the end.
        left = [thread.leave(linger_s) for thread in threads] if os.getpid() == process else []
        for thread, ending in zip(threads, left, strict=False):
            thread.wait_for_end(ending)


def _cancel(requests: Iterable[Request], process: int) -> None:
    """Begin no more stages of requests, but in a forked process: a thread that is not there may hold their locks."""
    if os.getpid() == process:
        for request in requests:
            request.cancel()


def _check_process(process: int) -> None:
    if os.getpid() != process:
        raise ResourceError(
            "the stream belongs to the process that opened it",
            why="this one came out of a fork, in which the threads of the devices are not",
            hint="open another stream here",
        )


def _with_lost(error: FusionError, answered: int, under_way: int) -> FusionError:
    """Return the error of a request with those that were under way behind it."""
    behind = under_way - 1
    lost = f"requests {answered + 2} to {answered + under_way}" if behind > 1 else f"request {answered + 2}"
    told = f"{lost}, under way behind it, {'have' if behind > 1 else 'has'} no result" if behind else ""
    why = "; ".join(filter(None, (error.why, told)))
    return type(error)(error.what, where=f"request {answered + 1}, {error.where}", why=why, hint=error.hint)
