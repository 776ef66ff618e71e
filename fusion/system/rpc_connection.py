"""The socket of a session of TVM RPC: found, so that no call waits without end, and asked why a call failed."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
CONNECT_S = 5.0
"""In which a server must have accepted the connection: it serves one session at a time."""
_SILENCE_S = 3
"""After which the system asks whether the other machine is there, and as long again until it is taken to be gone."""
ENDED = "the server ended, or closed the connection"
_connecting = threading.Lock()


class NoConnectionError(Exception):
    """Says why there is no session."""


def peer_of(host: str, port: int) -> Any:
    """Return the address by which a server answers, which sees a session that ends at once.

    Raises:
        NoConnectionError: It does not answer.
    """
    try:
        with socket.create_connection((host, port), CONNECT_S) as known:
            return known.getpeername()
    except OSError as error:
        raise NoConnectionError(str(error)) from error


def open_session(peer: Any, timeout_s: float, connect: Callable[[], T]) -> tuple[T, socket.socket]:
    """Return the session that `connect` opens and its socket, which TVM makes, and which nobody else would give up
    waiting on.

    Args:
        peer: The address of the server's side, as sockets name it.

    Raises:
        NoConnectionError: There is no server, or it does not answer.
    """
    answer: list[Any] = []

    def work() -> None:
        try:
            answer.append(connect())
        except Exception as error:
            answer.append(error)

    with _connecting:
        before = set[int]()
        for fd, each in _sockets_to(peer).items():
            before.add(fd)
            each.close()
        thread = threading.Thread(target=work, name="fusion connects", daemon=True)
        thread.start()
        thread.join(CONNECT_S)
        ours = list[socket.socket]()
        for fd, each in _sockets_to(peer).items():
            each.close() if fd in before else ours.append(each)
    if not answer or isinstance(answer[0], Exception) or len(ours) != 1:
        for each in ours:
            with contextlib.suppress(OSError), each:
                each.shutdown(socket.SHUT_RDWR)
        thread.join(CONNECT_S)  # no longer: one that is not connected yet has no socket to be found
        raise NoConnectionError(str(answer[0]).strip()[-300:] if ours or answer else "it does not answer")
    _notice_silence(ours[0])
    limit_waits(ours[0], timeout_s)
    return answer[0], ours[0]


def limit_waits(connection: socket.socket, timeout_s: float) -> None:
    """End waiting for an answer after `timeout_s`, from the next call on."""
    wait = struct.pack("ll", int(timeout_s), int(timeout_s % 1 * 1e6))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, wait)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, wait)


def why_lost(connection: socket.socket, taken_s: float, timeout_s: float) -> str:
    """Return why a call that failed says that the server is gone; "" where it answered with an error."""
    try:
        if connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b"":
            return ENDED
    except BlockingIOError:
        return silent(taken_s) if taken_s >= timeout_s else ""
    except OSError as error:
        return f"{ENDED}: {error.strerror}"
    return ""


def cut_off(connection: socket.socket) -> None:
    """Put a socket without another side in the place of a connection, wherever this process has it; the process that
    this one came out of keeps it. What is freed here would tell the server so in that one's name."""
    connected = os.fstat(connection.fileno()).st_ino
    alone, other = socket.socketpair()
    other.close()
    with alone:
        for fd in map(int, os.listdir("/proc/self/fd")):
            with contextlib.suppress(OSError):  # it was closed meanwhile
                status = os.fstat(fd)
                if stat.S_ISSOCK(status.st_mode) and status.st_ino == connected:
                    os.dup2(alone.fileno(), fd, inheritable=False)


def silent(seconds: float) -> str:
    """Return that there was no answer for so long."""
    return f"it did not answer in {seconds:.0f} s"


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


def _notice_silence(connection: socket.socket) -> None:
    """End waiting for a machine that is not there any more sooner."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 1), (socket.TCP_KEEPINTVL, 1), (socket.TCP_KEEPCNT, _SILENCE_S)):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * (1 + _SILENCE_S))
