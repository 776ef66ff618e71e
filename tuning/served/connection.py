"""A session on a server of TVM RPC, by the runtime alone: every call of it ends."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np

from fusion.client_watch import watch_code
from fusion.runtime import Module, tvm_ffi
from fusion.system.rpc_connection import NoConnectionError, limit_waits, open_session, why_lost
from tuning.messages import ServerLostError
from tuning.served.tracker import Match

T = TypeVar("T")
_CALL_S = 20.0
"""That a call may take, beside what it is asked to take itself."""
_BYTES_A_SECOND = 1e6
"""Of links that are fast enough."""
ALL_RAN, RAISED, ENDED, CAME_NOT_BACK = range(4)
"""How calls ended, as `measure.c` numbers it."""
_HOW = {
    RAISED: "it raised an error",
    ENDED: "it ended the process that measures on the server",
    CAME_NOT_BACK: "it did not come back",
}
_SETUP_S = 120.0


class RefusedError(Exception):
    """Says what the server refused."""


@dataclass(frozen=True)
class Ran:
    """What became of an order.

    Attributes:
        given: Of each entry that was made, its nanoseconds, or what was seen.
        failure: What became of the next one; "" where all is well. The server has to be opened again then.
    """

    given: tuple[int, ...]
    failure: str = ""


@dataclass
class ServerConnection:
    """A session.

    Attributes:
        match: Of the server.
        session: TVM's.
        connection: Of that.
    """

    match: Match
    session: Module
    connection: socket.socket
    _agent: Module = field(init=False)
    _libraries: dict[str, tuple[str, Module]] = field(default_factory=dict, init=False)
    _data: str = field(default="", init=False)

    @staticmethod
    def open(match: Match, agent: Path) -> ServerConnection:
        """Connect, and send the library at `agent`.

        Raises:
            ServerLostError: It is not there any more.
            RefusedError: It cannot load the library.
        """
        connect = tvm_ffi.get_global_func("rpc.Connect")
        try:
            # Not by `peer_of`: the server takes another key behind each connection.
            *_, peer = socket.getaddrinfo(match.host, match.port, type=socket.SOCK_STREAM)[0]
            made = open_session(peer, _CALL_S, lambda: connect(peer[0], match.port, match.key, False))
        except (NoConnectionError, OSError) as error:
            raise ServerLostError(str(error)) from error
        found = ServerConnection(match, *made)
        if code := watch_code():
            with contextlib.suppress(RefusedError):  # its system has other libraries: it is as TVM has it
                found.send("watch.so", code)
                found.call(lambda: found._load("watch.so").get_function("fusion_watch")())
        found.send("measure.so", agent.read_bytes())
        found._agent = found.call(lambda: found._load("measure.so"))
        return found

    def function(self, name: str) -> Callable[..., object] | None:
        """Return a function of the server; None where it has none of this name."""
        try:
            return self.call(lambda: self.session.get_function(name))  # type: ignore[no-any-return]
        except RefusedError:
            return None

    def call(self, what: Callable[[], T], seconds: float = 0.0) -> T:
        """Return what `what` returns, which calls the server and is to take so many `seconds` there.

        Raises:
            ServerLostError: The server is gone, or did not answer in time.
            RefusedError: It answered with an error.
        """
        allowed, started = _CALL_S + seconds, time.monotonic()
        limit_waits(self.connection, allowed)
        try:
            return what()
        except Exception as error:  # TVM raises classes of several kinds
            why = why_lost(self.connection, time.monotonic() - started, allowed)
            if not why:
                raise RefusedError(str(error).strip()[-500:]) from error
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)  # nothing that frees something there waits for an answer
            raise ServerLostError(why) from error

    def send(self, name: str, data: bytes) -> None:
        """Write a file of the session's folder."""
        asked = bytearray(data)
        self.call(lambda: self.session.get_function("tvm.rpc.server.upload")(name, asked), len(data) / _BYTES_A_SECOND)

    def fetch(self, name: str) -> bytes:
        """Return what is in a file of the session's folder."""
        return bytes(self.call(lambda: self.session.get_function("tvm.rpc.server.download")(name)))

    def read(self, path: Path) -> str:
        """Return what a file of the server's system says; "" where it is not there."""
        self.send("path", str(path).encode())
        copied = self.call(lambda: self._agent.get_function("fusion_copy")())
        return self.fetch("text").decode(errors="replace").strip() if copied else ""

    def library(self, path: str) -> str:
        """Return the name there of a library of kernels, which is sent and loaded where that was not done before."""
        if path not in self._libraries:
            name = f"kernels{len(self._libraries)}.so"
            self.send(name, Path(path).read_bytes())
            self._libraries[path] = name, self.call(lambda: self._load(name))
        return self._libraries[path][0]

    def data(self, path: str) -> str:
        """Return the name there of a file of data, which is sent where the server has another; "" of none."""
        if not path:
            return ""
        version = f"{path} {Path(path).stat().st_size}"
        if self._data != version:
            self.send("data", Path(path).read_bytes())
            self._data = version
        return "data"

    def begin(self, plan: bytes, most: int) -> None:
        """Let a child process of the server make what `plan` describes, for orders of up to so many entries.

        Raises:
            RefusedError: It cannot.
        """
        self.send("plan", plan)
        how = self.call(lambda: self._agent.get_function("fusion_open")(most), _SETUP_S)
        if how != ALL_RAN:
            raise RefusedError("the server has no memory for the network, or cannot run its kernels")

    def run(self, order: list[int], entry_s: float, total_s: float) -> Ran:
        """Have the entries of `order` made one by one; none may take longer than the first, and none begins after the
        second has passed."""
        self.send("order", np.array(order, "<i8").tobytes())
        times = int(entry_s * 1e3), int(total_s * 1e3)
        answer = int(self.call(lambda: self._agent.get_function("fusion_run")(*times), entry_s + total_s))
        how, done = answer >> 32, answer & 0xFFFFFFFF
        given = np.frombuffer(self.fetch("times"), "<i8")[:done] if done else ()
        return Ran(tuple(map(int, given)), _HOW.get(how, ""))

    def _load(self, name: str) -> Module:
        return tvm_ffi.get_global_func("rpc.LoadRemoteModule")(self.session, name)
