"""What a model keeps on each device, and how many requests may be under way for it."""

from __future__ import annotations

import contextlib
import math
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial

from fusion.devices.device_thread import DeviceThread
from fusion.devices.requests import Flow
from fusion.errors import LimitError
from fusion.system.forks import Lock
from fusion.system.interrupts import wait_for
from fusion.tensors import tensor_bytes

Bytes = Mapping[DeviceThread, int]
PATIENCE_S = 30.0
"""So long a request waits for the memory of those under way."""


def kept_always(flows: Iterable[Flow]) -> Bytes:
    """Return what each device keeps for flows that are ready to run: weights, and an arena for each stage."""
    weights, found = dict[tuple[DeviceThread, int], int](), Counter[DeviceThread]()
    arenas = dict[tuple[DeviceThread, int], int]()
    for flow in flows:
        for stage in flow.stages:
            arenas[stage.thread, id(stage.program)] = sum(stage.program.plan.storages)
            for weight in stage.program.weights:
                shape = tuple(int(extent) for extent in weight.shape)
                weights[stage.thread, id(weight)] = tensor_bytes(shape, str(weight.dtype))
    for kept in (weights, arenas):
        for (thread, _), size in kept.items():
            found[thread] += size
    return found


def kept_by_request(flow: Flow) -> Bytes:
    """Return what each device keeps while a request is under way: inputs that it reads, and what it makes."""
    found = Counter[DeviceThread]()
    for stage in flow.stages:
        found[stage.thread] += stage.kept
    return found


def why_too_small(flows: Iterable[Flow]) -> str:
    """Return which device cannot keep what flows need for one request, and by how much; "" where all can."""
    flows = tuple(flows)
    always = kept_always(flows)
    for flow in flows:
        for thread, size in kept_by_request(flow).items():
            if always[thread] + size > thread.device.memory:
                return (
                    f"the device {thread.device.name!r} may keep {thread.device.memory:,.0f} bytes, and weights and"
                    f" activations take {always[thread]:,}, a request {size:,}"
                )
    return ""


class MemoryLedger:
    """Has what of each device's memory no request uses.

    Attributes:
        is_limited: Whether a device has a limit.
    """

    def __init__(self, flows: Iterable[Flow]) -> None:
        """`flows` are ready to run.

        Raises:
            LimitError: A device cannot keep one request of a flow.
        """
        flows = tuple(flows)
        if why := why_too_small(flows):
            hint = "raise its limit, or name more devices"
            raise LimitError("a device has too little memory for its part of the model", why=why, hint=hint)
        always = kept_always(flows)
        self._room = {thread: thread.device.memory - size for thread, size in always.items()}
        self._needs = {flow: kept_by_request(flow) for flow in flows}
        self.is_limited = any(room < math.inf for room in self._room.values())
        forget = partial(self._room.update, dict(self._room))  # in a forked process nobody has any of it
        self._changed = threading.Condition(Lock(forget))

    def take(self, flow: Flow, *, wait: bool) -> bool:
        """Take what a request of `flow` needs, of all devices at once; without room, return False, or wait for it.

        Raises:
            LimitError: There was none for `PATIENCE_S`: a stream that nobody reads may have it.
        """
        if not self.is_limited:
            return True
        needs = self._needs[flow]
        with self._changed:
            if not wait_for(self._changed, lambda: not self._full(needs), PATIENCE_S if wait else 0.0):
                if wait:
                    raise self._error(needs)
                return False
            for thread, size in needs.items():
                self._room[thread] -= size
        return True

    def give(self, flow: Flow) -> None:
        """Take back what a request of `flow` needed."""
        if not self.is_limited:
            return
        with self._changed:
            for thread, size in self._needs[flow].items():
                self._room[thread] += size
            self._changed.notify_all()

    @contextlib.contextmanager
    def held(self, flow: Flow) -> Iterator[None]:
        """Have what a request of `flow` needs in the block."""
        self.take(flow, wait=True)
        try:
            yield
        finally:
            self.give(flow)

    def _full(self, needs: Bytes) -> list[DeviceThread]:
        return [thread for thread, size in needs.items() if self._room[thread] < size]

    def _error(self, needs: Bytes) -> LimitError:
        thread = self._full(needs)[0]
        return LimitError(
            f"the memory of the device {thread.device.name!r} is full",
            why=f"of {thread.device.memory:,.0f} bytes {self._room[thread]:,.0f} are left for requests, one takes"
            f" {needs[thread]:,}, and none that has more ended in {PATIENCE_S:g} s",
            hint="read or close the streams that are open, call from fewer threads, or raise the device's limit",
        )
