"""Captures of callers: streams whose work becomes a graph of somebody else's, and what each launch of that uses.

CUDA Driver API reference, "Stream Management" and "Graph Management": a graph holds user objects, and tells when the
last graph that was made of it is gone and has run, by a call from a thread of the driver's, in which nothing of CUDA
may be called. Here that is `sem_post` of the C library, so that it needs no lock, and no Python.
"""

from __future__ import annotations

import ctypes
from collections import deque
from ctypes import c_int, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any

from backends.cuda.runtime.device import OpenDevice
from backends.cuda.runtime.driver import LEGACY_STREAM
from fusion.system.forks import Lock

_ACTIVE = 1
"""CU_STREAM_CAPTURE_STATUS_ACTIVE."""
_NO_DESTRUCTOR_SYNC, _MOVE = 1, 1
"""CU_USER_OBJECT_NO_DESTRUCTOR_SYNC, nobody waits for the call; CU_GRAPH_USER_OBJECT_MOVE, the graph has the object."""
_library = ctypes.CDLL(None)
_Semaphore = c_uint64 * 8
"""Room for a sem_t: 32 bytes with glibc on 64 bits, 16 or 32 elsewhere."""
_kept: deque[tuple[ctypes.Array[c_uint64], Any]] = deque()
_keeping = Lock()


@dataclass(frozen=True)
class Capture:
    """A capture that is under way on a caller's stream.

    Attributes:
        identity: No other capture of the process has it.
        graph: What it adds to, until it ends.
    """

    device: OpenDevice
    identity: int
    graph: int

    def keep(self, held: Any) -> None:
        """Hold an object until the graph, and all that was made of it, are gone; the context is current.

        Raises:
            FusionError: The driver refuses it.
        """
        gone = _Semaphore()
        _library.sem_init(gone, 0, 0)
        posts = ctypes.cast(_library.sem_post, c_void_p)
        made = self.device.make("cuUserObjectCreate", ctypes.addressof(gone), posts, 1, _NO_DESTRUCTOR_SYNC)
        with _keeping:
            _kept.append((gone, held))
        try:
            self.device.call("cuGraphRetainUserObject", self.graph, made, 1, _MOVE)
        except BaseException:
            self.device.status("cuUserObjectRelease", made, 1)
            raise


def capture_on(device: OpenDevice, stream: int) -> Capture | None:
    """Return what a stream is captured for; None where it computes. The context is current."""
    if stream == LEGACY_STREAM:  # which nobody can capture
        return None
    status, identity, graph = c_int(), c_uint64(), c_void_p()
    device.call(
        "cuStreamGetCaptureInfo_v2", stream, ctypes.byref(status), ctypes.byref(identity), ctypes.byref(graph), None,
        None,
    )  # fmt: skip
    return Capture(device, identity.value, graph.value or 0) if status.value == _ACTIVE else None


def let_go() -> None:
    """Give up what graphs held that are gone."""
    gone = list[tuple[ctypes.Array[c_uint64], Any]]()
    with _keeping:
        for _ in range(len(_kept)):  # one step each, as a collection between two may add others
            each = _kept.popleft()
            (_kept if _library.sem_trywait(each[0]) else gone).append(each)
    gone.clear()  # outside of the lock: what is freed may be a module
