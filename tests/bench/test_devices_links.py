"""The relay that stands in for a slow link, and the bench's own report of what was measured through it."""

from __future__ import annotations

import socket
import threading
import time
from argparse import Namespace
from collections.abc import Iterator

import pytest

from bench.devices.links import Linked, Loss, text
from bench.devices.relay import Relay


@pytest.fixture
def echo() -> Iterator[tuple[str, int]]:
    """A server that returns each byte of one connection at a time."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                while data := connection.recv(1 << 16):
                    connection.sendall(data)

    threading.Thread(target=serve, daemon=True).start()
    yield listener.getsockname()
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def _round_trip(connection: socket.socket, data: bytes) -> float:
    started = time.perf_counter()
    threading.Thread(target=connection.sendall, args=(data,)).start()
    left, found = len(data), b""
    while left:
        found += connection.recv(1 << 16)
        left = len(data) - len(found)
    assert found == data
    return time.perf_counter() - started


def test_bytes_come_late_and_no_faster_than_the_link(echo: tuple[str, int]) -> None:
    with (
        Relay(echo, latency_us=20_000.0, gbs=0.01) as relay,
        socket.create_connection(("127.0.0.1", relay.port)) as connection,
    ):
        assert min(_round_trip(connection, b"x") for _ in range(3)) >= 0.04
        # A megabyte takes 0.1 s at 10 MB/s, and comes back meanwhile.
        assert _round_trip(connection, bytes(range(256)) * 4000) >= 0.04 + 0.1


def test_the_end_of_a_connection_is_passed_on(echo: tuple[str, int]) -> None:
    with (
        Relay(echo, latency_us=0.0, gbs=1.0) as relay,
        socket.create_connection(("127.0.0.1", relay.port)) as connection,
    ):
        _round_trip(connection, b"x")
        relay.close()
        connection.settimeout(5.0)
        assert connection.recv(1) == b""


def test_the_report_says_how_far_off_plans_are() -> None:
    expected = {"throughput": 9.0, "latency": 22.0}
    found = Linked("net", "rpc://a rpc://b", "a relay", "2 replicas", expected, True, [10.0, 10.0], [20.0])
    told = text([found], [Loss("killed", 0.5, "lost")], Namespace(gbs=0.125, latency_us=1000.0))
    assert "1 Gbit/s and 1000 us each way" in told
    assert "-10.0%" in told
    assert "+10.0%" in told
    assert "killed: an error after 0.50 s: lost" in told
