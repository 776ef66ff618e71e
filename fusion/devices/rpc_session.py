"""The connection to a server of TVM RPC, of which every call ends: with an answer, or as the error of a lost device."""

from __future__ import annotations

import contextlib
import os
import socket
import statistics
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import tvm

from fusion.client_watch import watch_code
from fusion.devices.targets import DeviceTarget, RpcServer
from fusion.errors import DeviceLostError, ExecutionError, TargetError
from fusion.report.profile import timed
from fusion.system.rpc_connection import (
    NoConnectionError,
    cut_off,
    limit_waits,
    open_session,
    peer_of,
    silent,
    why_lost,
)
from fusion.tensors import allocate_tensor
from placement.devices import Link

T = TypeVar("T")
_ROUNDS = 9
_LARGE = 1 << 20
"""Bytes of the copy that tells the bandwidth."""
_CPU = "target.llvm_get_system_cpu"
"""A function of TVM's compiler."""
_ANSWER_S = 3.0
"""In which a server answers what takes it no time, unless its target says another time: lost devices are told within
5 s."""
_THERE_S = 1.0
"""In which it answers that it is there, unless its target says a longer time."""
_TIMES_AS_LONG = 30.0
"""As expected a call may take where that is more: a server does one thing at a time, and cannot tell that it still
computes. On a machine with six times as many busy processes as CPUs, calls took 11 times as long as estimated."""
SETUP_S = 10.0
"""In which a server answers what is done once, whatever its target says: it loads code from a disk."""


class RpcSession:
    """A session on a server. One thread at a time may use it; others wait.

    Attributes:
        server: It.
        device: Its CPU, for TVM.
        link: What copies to and from it take.
        others: Sessions that end when this one is lost: no model runs any more that needs both.
    """

    def __init__(self, server: RpcServer) -> None:
        """Connect.

        Raises:
            TargetError: There is no server, it serves another, has another key, no compiler, or another kind of CPU.
            DeviceLostError: It ended meanwhile.
        """
        self.server = server
        self._process = os.getpid()
        self._lock = threading.Lock()  # never taken twice: where garbage is collected in a call, `close` may be called
        self._lost, self._why_lost = server.name, ""
        self.others: Sequence[weakref.ref[RpcSession]] = ()
        self._session, self._socket = _connect(server)
        weakref.finalize(self, self._socket.close)
        _all.add(self)
        self.device = self._session.cpu(0)
        try:
            self._check_cpu()
            if code := watch_code():
                with contextlib.suppress(ExecutionError):  # its system has other libraries: it is as TVM has it
                    self.call(lambda: self.load(code)["fusion_watch"](), patience_s=SETUP_S, frees=True)
            self.link = self.call(self._measure_link, patience_s=SETUP_S, frees=True)
        except BaseException:
            self.close("it is of no use")
            raise

    def after_fork(self) -> None:
        """In a forked process, leave the connection to the other one."""
        with contextlib.suppress(OSError):  # it is closed
            cut_off(self._socket)

    def _check_cpu(self) -> None:
        theirs, ours = self._cpu(), _own_cpu()
        if theirs != ours:
            raise TargetError(
                f"the device {self.server.name!r} has another CPU than this machine",
                why=f"it is a {theirs}, and code is made for this one, a {ours}",
                hint="compile the model on a machine like that",
            )

    def _cpu(self) -> str:
        try:
            return str(self.call(lambda: self.function(_CPU)(), patience_s=SETUP_S, frees=True))
        except ExecutionError as error:
            raise TargetError(
                f"the device {self.server.name!r} cannot tell its CPU",
                why=f"it has TVM's runtime without the compiler, or could not load that ({error.why})",
                hint="install apache-tvm of this version there, and see what its server prints as it starts",
            ) from error

    def function(self, name: str) -> Any:
        """Return a function of the server by its name."""
        return self._session.get_function(name)

    def call(
        self, what: Callable[[], T], expected_s: float = 0.0, *, patience_s: float = 0.0, frees: bool = False
    ) -> T:
        """Return what `what` returns, which calls the server and is expected to take so long.

        Args:
            patience_s: Seconds that are waited for it at least.
            frees: Whether it frees something there, of which TVM tells no error: where it took too long, the server is
                asked whether it is there, as it may be this process that was stopped.

        Raises:
            DeviceLostError: The server is gone, or did not answer in time; this is raised by all later calls.
            ExecutionError: The server answered with an error.
        """
        limit = max(patience_s, self.server.timeout or max(_ANSWER_S, _TIMES_AS_LONG * expected_s))
        with self._used():
            limit_waits(self._socket, limit)
            started = time.monotonic()
            try:
                answer = what()
            except Exception as error:  # TVM raises classes of several kinds
                why = why_lost(self._socket, time.monotonic() - started, limit)
                if not why:
                    raise ExecutionError("a device refused a call", why=str(error).strip()[-500:]) from error
                raise self._lose(why) from error
            except BaseException:  # an interrupt: the next call would take the answer to this one for its own
                self._lose("a call of it was interrupted")
                raise
            taken = time.monotonic() - started
            if frees and taken >= limit and not self._is_there():
                raise self._lose(silent(taken))
            return answer

    def _is_there(self) -> bool:
        """Return whether the server answers what takes no time; an answer to another question is none."""
        limit_waits(self._socket, max(_THERE_S, self.server.timeout or 0.0))
        try:
            return str(self.function(_CPU)()) == _own_cpu()
        except Exception:  # TVM raises classes of several kinds
            return False

    def close(self, why: str, lost: str = "") -> None:
        """End the connection, and let the server serve others; not within a call that is under way, which TVM's server
        would end with. Later calls raise the error of a lost device, this one unless `lost` names it, which has `why`.
        """
        if os.getpid() != self._process:  # it is the connection of the process that this one came out of
            return
        if not self._why_lost:
            self._lost, self._why_lost = lost or self._lost, why
        if self._lock.acquire(blocking=False):
            try:
                self._shut_down()
            finally:
                self._lock.release()

    @contextlib.contextmanager
    def _used(self) -> Iterator[None]:
        """Have the connection in the block."""
        if os.getpid() != self._process:
            raise self._error("this process came out of a fork, and the connection is the other one's")
        try:
            with self._lock:
                if self._why_lost:
                    raise self._error(self._why_lost)
                yield
        finally:
            if self._why_lost:  # `close` was called meanwhile
                self.close(self._why_lost)

    def _lose(self, why: str) -> DeviceLostError:
        """Return the error of this device, and end the connection: nothing that frees a tensor there waits then."""
        self._why_lost = self._why_lost or why
        self._shut_down()
        for other in self.others:
            if (session := other()) is not None:
                session.close(self._why_lost, self._lost)
        return self._error(self._why_lost)

    def _shut_down(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _error(self, why: str) -> DeviceLostError:
        hint = "see whether its server runs and can be reached, and compile the model again; if it only takes long,"
        return DeviceLostError(f"the device {self._lost!r} is lost", why=why, hint=f"{hint} with ?timeout=300")

    def load(self, library: bytes) -> Any:
        """Return the functions of a shared library that is sent to the server."""
        name = f"fusion-{id(library)}.so"
        self._session.upload(bytearray(library), name)
        return self._session.load_module(name)

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Return memory of the server as a tensor."""
        return tvm.runtime.empty(shape, dtype, self.device)

    def _measure_link(self) -> Link:
        """Return what copies to and from the server take; to each belong two calls, to copy, and to run or to free."""
        there = {size: self.empty((size,), "uint8") for size in (1, _LARGE)}
        here = {size: allocate_tensor((size,), "uint8") for size in there}

        def seconds(size: int) -> float:
            return statistics.median(timed(lambda: here[size].copyto(there[size])) for _ in range(_ROUNDS))

        round_trip, whole = seconds(1), seconds(_LARGE)
        return Link(2e6 * round_trip, _LARGE / max(whole - round_trip, 1e-6) / 1e9)


_all: weakref.WeakSet[RpcSession] = weakref.WeakSet()


def _after_fork() -> None:
    for session in list(_all):
        session.after_fork()


os.register_at_fork(after_in_child=_after_fork)


def open_sessions(devices: Sequence[DeviceTarget]) -> dict[int, RpcSession]:
    """Return a session on each server among devices, by its position; when one is lost, the others end.

    Raises:
        TargetError, DeviceLostError: Of one of them; none is left then.
    """
    sessions = dict[int, RpcSession]()
    with closed_on_error(sessions):
        for k, device in enumerate(devices):
            if isinstance(device, RpcServer):
                sessions[k] = RpcSession(device)
    for session in sessions.values():
        session.others = tuple(weakref.ref(other) for other in sessions.values() if other is not session)
    return sessions


@contextlib.contextmanager
def closed_on_error(sessions: Mapping[int, RpcSession]) -> Iterator[None]:
    """End sessions where the block raises, whatever holds them: a traceback does."""
    try:
        yield
    except BaseException:
        for session in sessions.values():
            session.close("what was to use it failed")
        raise


def _own_cpu() -> str:
    return str(tvm.get_global_func(_CPU)())


def _connect(server: RpcServer) -> tuple[Any, socket.socket]:
    from tvm import rpc

    try:
        peer = peer_of(server.host, server.port)
        limit = server.timeout or _ANSWER_S
        return open_session(peer, limit, lambda: rpc.connect(server.host, server.port, server.key))
    except NoConnectionError as error:
        started = f"--host 0.0.0.0 --port {server.port} --port-end {server.port + 1} --key {server.key}"
        raise TargetError(
            f"cannot connect to the device {server.name!r}",
            why=str(error),
            hint=f"start it where apache-tvm=={tvm.__version__} and cloudpickle are installed: "
            f"python -m tvm.exec.rpc_server {started}; it serves one session at a time",
        ) from error
