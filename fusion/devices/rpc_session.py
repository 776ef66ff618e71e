"""The connection to a server of TVM RPC, of which every call ends: with an answer, or as the error of a lost device."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import statistics
import struct
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

import tvm

from fusion.devices.targets import RpcServer
from fusion.errors import DeviceLostError, ExecutionError, TargetError
from fusion.tensors import allocate_tensor
from placement.devices import Link

T = TypeVar("T")
_CONNECT_S = 5.0
"""In which a server must have accepted the connection: it serves one session at a time."""
_SILENCE_S = 3
"""After which the system asks whether the other machine is there, and as long again until it is taken to be gone."""
_ROUNDS = 9
_LARGE = 1 << 20
"""Bytes of the copy that tells the bandwidth."""
_CPU = "target.llvm_get_system_cpu"
"""A function of TVM's compiler."""
_ENDED = "the server ended, or closed the connection"


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
                why = self._why_lost(time.monotonic() - started)
                if not why:
                    raise ExecutionError("a device refused a call", why=str(error).strip()[-500:]) from error
                self._lost = self._error(why)
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)  # nothing that frees a tensor there waits for an answer
                raise self._lost from error

    def _error(self, why: str) -> DeviceLostError:
        hint = "see whether its server runs and can be reached, and compile the model again"
        return DeviceLostError(f"the device {self.server.name!r} is lost", why=why, hint=hint)

    def _why_lost(self, taken_s: float) -> str:
        try:
            if self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b"":
                return _ENDED
        except BlockingIOError:
            return f"it did not answer in {taken_s:.0f} s" if taken_s >= self.server.timeout else ""
        except OSError as error:
            return f"{_ENDED}: {error.strerror}"
        return ""

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


_connecting = threading.Lock()


def _connect(server: RpcServer) -> tuple[Any, socket.socket]:
    """Return the session and its socket, which TVM opens, and which nobody else would give up waiting on."""
    from tvm import rpc

    try:
        with socket.create_connection((server.host, server.port), _CONNECT_S) as known:
            peer = known.getpeername()
    except OSError as error:
        raise _not_there(server, str(error)) from error
    answer: list[Any] = []

    def connect() -> None:
        try:
            answer.append(rpc.connect(server.host, server.port, server.key))
        except Exception as error:
            answer.append(error)

    with _connecting:
        before = set[int]()
        for fd, each in _sockets_to(peer).items():
            before.add(fd)
            each.close()
        thread = threading.Thread(target=connect, name="fusion connects", daemon=True)
        thread.start()
        thread.join(_CONNECT_S)
        ours = list[socket.socket]()
        for fd, each in _sockets_to(peer).items():
            each.close() if fd in before else ours.append(each)
    if not answer or isinstance(answer[0], Exception) or len(ours) != 1:
        for each in ours:
            with contextlib.suppress(OSError), each:
                each.shutdown(socket.SHUT_RDWR)
        thread.join()
        raise _not_there(server, str(answer[0]).strip()[-300:] if ours or answer else "it does not answer")
    _limit_waits(ours[0], server.timeout)
    return answer[0], ours[0]


def _not_there(server: RpcServer, why: str) -> TargetError:
    return TargetError(
        f"cannot connect to the device {server.name!r}",
        why=why,
        hint=f"start it: python -m tvm.exec.rpc_server --host 0.0.0.0 --port {server.port} --key {server.key}; "
        "it serves one session at a time",
    )


def _sockets_to(peer: Any) -> dict[int, socket.socket]:
    """Return the sockets of this process that are connected to an address, each as a copy of its descriptor."""
    found = {}
    for fd in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):  # it was closed meanwhile, or is connected to nothing
            if not stat.S_ISSOCK(os.fstat(fd).st_mode):
                continue
            with socket.socket(fileno=os.dup(fd)) as known:
                if known.getpeername() == peer:
                    found[fd] = known.dup()
    return found


def _limit_waits(connection: socket.socket, timeout_s: float) -> None:
    """End waiting for an answer after `timeout_s`, and for a machine that is not there any more sooner."""
    wait = struct.pack("ll", int(timeout_s), 0)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, wait)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, wait)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 1), (socket.TCP_KEEPINTVL, 1), (socket.TCP_KEEPCNT, _SILENCE_S)):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * (1 + _SILENCE_S))
