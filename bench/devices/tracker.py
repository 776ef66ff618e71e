"""A tracker of TVM RPC in a thread: what `python -m tvm.exec.rpc_tracker` runs, which wants tornado (its protocol is in
tvm/rpc/tracker.py)."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Any

_MAGIC = 0x2F271
_PING, _STOP, _PUT, _REQUEST, _UPDATE, _SUMMARY, _PENDING = range(1, 8)
_SUCCESS = 0
_Value = tuple[str, int, str]
"""Host, port and key of a server that waits for a session."""


@dataclass(eq=False)
class _Client:
    connection: socket.socket
    host: str
    info: dict[str, Any] = field(default_factory=dict)
    put: list[tuple[str, _Value]] = field(default_factory=list)

    def say(self, answer: object) -> bool:
        text = json.dumps(answer).encode()
        with contextlib.suppress(OSError):
            self.connection.sendall(struct.pack("<i", len(text)) + text)
            return True
        return False


class TrackerThread:
    """A tracker; use as a context manager.

    Attributes:
        port: Where it listens, of the loopback device.
    """

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._lock = threading.Lock()
        self._clients = set[_Client]()
        self._asking = deque[tuple[str, _Client]]()

    def __enter__(self) -> TrackerThread:
        threading.Thread(target=self._accept, name="tracker", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            connections = [self._listener, *(client.connection for client in self._clients)]
        for each in connections:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def free(self, key: str) -> int:
        """Return how many servers of a key wait for a session."""
        with self._lock:
            return sum(mine == key for client in self._clients for mine, _ in client.put)

    def _accept(self) -> None:
        while True:
            try:
                connection, (host, *_) = self._listener.accept()
            except OSError:  # closed
                return
            client = _Client(connection, host)
            threading.Thread(target=self._serve, args=(client,), name="tracker", daemon=True).start()

    def _serve(self, client: _Client) -> None:
        with self._lock:
            self._clients.add(client)
        with contextlib.suppress(OSError, struct.error), client.connection:
            client.connection.sendall(_receive(client.connection, 4))
            while True:
                (size,) = struct.unpack("<i", _receive(client.connection, 4))
                code, *values = json.loads(_receive(client.connection, size))
                with self._lock:
                    self._answer(client, code, values)
        with self._lock:
            self._clients.discard(client)

    def _answer(self, client: _Client, code: int, values: list[Any]) -> None:
        if code == _UPDATE:
            client.info = values[0]
        if code == _PUT:
            key, (port, match), custom = values
            client.put.append((key, (custom or client.host, port, match)))
        if code in (_UPDATE, _PUT, _PING):
            client.say(_SUCCESS)
        if code == _PENDING:
            client.say([match for _, (_, _, match) in client.put])
        if code == _SUMMARY:
            servers = [each.info for each in self._clients if each.info]
            client.say([_SUCCESS, {"server_info": servers, "queue_info": {}}])
        if code == _REQUEST:
            self._asking.append((values[0], client))
        self._hand_out()

    def _hand_out(self) -> None:
        """Give servers that wait to those who ask, in order."""
        for key, asking in list(self._asking):
            holder = next((each for each in self._clients if any(mine == key for mine, _ in each.put)), None)
            if holder is None:
                continue
            self._asking.remove((key, asking))
            entry = next(entry for entry in holder.put if entry[0] == key)
            if asking in self._clients and asking.say([_SUCCESS, entry[1]]):
                holder.put.remove(entry)


def _receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        some = connection.recv(size - len(data))
        if not some:
            raise OSError("the connection was closed")
        data += some
    return data
