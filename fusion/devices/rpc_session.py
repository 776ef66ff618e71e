"""The connection to a server of TVM RPC, of which every call ends: with an answer, or as the error of a lost device."""

from __future__ import annotations

import contextlib
import socket
import statistics
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

import tvm

from fusion.devices.targets import RpcServer
from fusion.errors import DeviceLostError, ExecutionError, TargetError
from fusion.rpc_connection import NoConnectionError, open_session, peer_of, why_lost
from fusion.tensors import allocate_tensor
from placement.devices import Link

T = TypeVar("T")
_ROUNDS = 9
_LARGE = 1 << 20
"""Bytes of the copy that tells the bandwidth."""
_CPU = "target.llvm_get_system_cpu"
"""A function of TVM's compiler."""


class RpcSession:
    """A session on a server. One thread at a time may use it; others wait."""

    def __init__(self, server: RpcServer) -> None:
        """Connect.

        Raises:
            TargetError: There is no server, it serves another, has another key, no compiler, or another kind of CPU.
            DeviceLostError: It ended meanwhile.
        """
        self.server = server
        self._lock = threading.RLock()
        self._lost: DeviceLostError | None = None
        self._session, self._socket = _connect(server)
        weakref.finalize(self, self._socket.close)
        self.device = self._session.cpu(0)
        theirs, ours = self._cpu(), str(tvm.get_global_func(_CPU)())
        if theirs != ours:
            raise TargetError(
                f"the device {server.name!r} has another CPU than this machine",
                why=f"it is a {theirs}, and code is made for this one, a {ours}",
                hint="compile the model on a machine like that",
            )

    def _cpu(self) -> str:
        try:
            return str(self.call(lambda: self.function(_CPU)()))
        except ExecutionError as error:
            raise TargetError(
                f"the device {self.server.name!r} cannot tell its CPU",
                why=f"it has TVM's runtime without the compiler, or could not load that ({error.why})",
                hint="install apache-tvm of this version there, and see what its server prints as it starts",
            ) from error

    def function(self, name: str) -> Any:
        """Return a function of the server by its name."""
        return self._session.get_function(name)

    def call(self, what: Callable[[], T]) -> T:
        """Return what `what` returns, which calls the server.

        Raises:
            DeviceLostError: The server is gone, or did not answer in time; this is raised by all later calls.
            ExecutionError: The server answered with an error.
        """
        with self._lock:
            if self._lost is not None:
                raise self._error(self._lost.why)
            started = time.monotonic()
            try:
                return what()
            except Exception as error:  # TVM raises classes of several kinds
                why = why_lost(self._socket, time.monotonic() - started, self.server.timeout)
                if not why:
                    raise ExecutionError("a device refused a call", why=str(error).strip()[-500:]) from error
                self._lost = self._error(why)
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)  # nothing that frees a tensor there waits for an answer
                raise self._lost from error

    def _error(self, why: str) -> DeviceLostError:
        hint = "see whether its server runs and can be reached, and compile the model again"
        return DeviceLostError(f"the device {self.server.name!r} is lost", why=why, hint=hint)

    def load(self, library: bytes) -> Any:
        """Return the functions of a shared library that is sent to the server."""
        name = f"fusion-{id(library)}.so"
        self._session.upload(bytearray(library), name)
        return self._session.load_module(name)

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Return memory of the server as a tensor."""
        return tvm.runtime.empty(shape, dtype, self.device)

    def measure_link(self) -> Link:
        """Return what copies to and from the server take; to each belong two calls, to copy, and to run or to free."""
        there = {size: self.empty((size,), "uint8") for size in (1, _LARGE)}
        here = {size: allocate_tensor((size,), "uint8") for size in there}

        def seconds(size: int) -> float:
            return statistics.median(_timed(lambda: here[size].copyto(there[size])) for _ in range(_ROUNDS))

        round_trip, whole = self.call(lambda: seconds(1)), self.call(lambda: seconds(_LARGE))
        return Link(2e6 * round_trip, _LARGE / max(whole - round_trip, 1e-6) / 1e9)


def _timed(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def _connect(server: RpcServer) -> tuple[Any, socket.socket]:
    from tvm import rpc

    try:
        peer = peer_of(server.host, server.port)
        return open_session(peer, server.timeout, lambda: rpc.connect(server.host, server.port, server.key))
    except NoConnectionError as error:
        raise TargetError(
            f"cannot connect to the device {server.name!r}",
            why=str(error),
            hint=f"start it: python -m tvm.exec.rpc_server --host 0.0.0.0 --port {server.port} --key {server.key}; "
            "it serves one session at a time",
        ) from error
