"""What a tracker of TVM RPC is asked: which servers there are, and for one of them.

tvm/rpc/tracker.py has the protocol. TVM's own client waits without end, for the tracker and for a server that is free.
"""

from __future__ import annotations

import json
import socket
import struct
from dataclasses import dataclass
from typing import Any

from fusion.system.deadline import Deadline

_MAGIC = 0x2F271
_REQUEST, _SUMMARY = 4, 6
_SUCCESS = 0
_MOST_BYTES = 1 << 20
"""Of an answer."""
_SERVER = "server:"
_PRIORITY = 1


class TrackerError(Exception):
    """Says why the tracker gave no answer."""


@dataclass(frozen=True)
class Match:
    """A server that waits for who asked: `key` is for that session alone."""

    host: str
    port: int
    key: str

    @property
    def address(self) -> str:
        """What stays the same from session to session."""
        return f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Tracker:
    """A tracker of TVM RPC.

    Attributes:
        host, port: Where it listens.
    """

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    def servers(self, seconds: float) -> list[str]:
        """Return the key of each server that is registered, free or not.

        Raises:
            TrackerError: It does not answer in time.
        """
        found = self._ask([_SUMMARY], seconds)
        try:
            keys = [str(info["key"]) for info in found["server_info"]]
        except (KeyError, TypeError) as error:
            raise TrackerError("it answers otherwise than a tracker does") from error
        return [key.removeprefix(_SERVER) for key in keys]

    def request(self, key: str, seconds: float) -> Match:
        """Return a server of this key as soon as one is free.

        Raises:
            TrackerError: None was in time.
        """
        found = self._ask([_REQUEST, key, "", _PRIORITY], seconds)
        try:
            host, port, match = found
            return Match(str(host), int(port), str(match))
        except (TypeError, ValueError) as error:
            raise TrackerError("it answers otherwise than a tracker does") from error

    def _ask(self, question: list[Any], seconds: float) -> Any:
        ends = Deadline.after(seconds)
        try:
            with socket.create_connection((self.host, self.port), seconds) as connection:
                connection.sendall(struct.pack("<i", _MAGIC))
                if _number(connection, ends) != _MAGIC:
                    raise TrackerError("what listens there is no tracker of TVM RPC")
                text = json.dumps(question).encode()
                connection.sendall(struct.pack("<i", len(text)) + text)
                size = _number(connection, ends)
                if not 0 < size <= _MOST_BYTES:
                    raise TrackerError("it answers otherwise than a tracker does")
                status, *rest = json.loads(_receive(connection, size, ends))
        except (OSError, ValueError, TypeError) as error:
            raise TrackerError(str(error)) from error
        if status != _SUCCESS or len(rest) != 1:
            raise TrackerError(f"it answers {status}")
        return rest[0]


def _number(connection: socket.socket, ends: Deadline) -> int:
    return int(struct.unpack("<i", _receive(connection, 4, ends))[0])


def _receive(connection: socket.socket, size: int, ends: Deadline) -> bytes:
    data = b""
    while len(data) < size:
        connection.settimeout(max(ends.left, 1e-3))
        some = connection.recv(size - len(data))
        if not some:
            raise TrackerError("it closed the connection")
        data += some
    return data
