"""`python -m bench.devices.relay`: a TCP relay that delays what it passes on, and limits how fast.

It stands in for `tc qdisc add ... netem delay`, which not every kernel has: each byte arrives `latency_us` after it was
sent, and behind those before it at `gbs`, in each direction.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import queue
import socket
import threading
import time

from bench import command

_CHUNK = 1 << 16
_Chunk = tuple[float, bytes]


class Relay:
    """Accepts connections and passes their bytes on to another address; use as a context manager.

    Attributes:
        port: Where it listens.
    """

    def __init__(
        self, target: tuple[str, int], *, latency_us: float, gbs: float, listen: tuple[str, int] = ("127.0.0.1", 0)
    ) -> None:
        """`gbs` are 1e9 bytes a second each way, infinite for no limit; `latency_us` microseconds each way."""
        self._target, self._delay, self._rate = target, latency_us * 1e-6, gbs * 1e9
        self._listener = socket.create_server(listen)
        self.port = int(self._listener.getsockname()[1])
        self._open = set[socket.socket]()

    def __enter__(self) -> Relay:
        threading.Thread(target=self.serve, name="relay", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def serve(self) -> None:
        """Accept connections until it is closed."""
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed
                return
            try:
                server = socket.create_connection(self._target)
            except OSError:
                client.close()
                continue
            for each in (client, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._open.add(each)
            self._pass_on(client, server)
            self._pass_on(server, client)

    def close(self) -> None:
        """End all connections, as the end of a machine does, and accept no more."""
        for each in (self._listener, *self._open):
            _end(each)

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        chunks = queue.SimpleQueue[_Chunk]()
        for work in (lambda: self._read(source, chunks), lambda: _write(target, chunks)):
            threading.Thread(target=work, name="relay", daemon=True).start()

    def _read(self, source: socket.socket, chunks: queue.SimpleQueue[_Chunk]) -> None:
        """Note when each chunk arrives: once the link has passed it on, and the delay later."""
        free = 0.0
        while True:
            try:
                data = source.recv(_CHUNK)
            except OSError:
                data = b""
            free = max(free, time.perf_counter()) + len(data) / self._rate
            chunks.put((free + self._delay, data))
            if not data:
                return


def _write(target: socket.socket, chunks: queue.SimpleQueue[_Chunk]) -> None:
    while True:
        due, data = chunks.get()
        time.sleep(max(0.0, due - time.perf_counter()))
        if not data:
            _end(target)
            return
        with contextlib.suppress(OSError):  # nobody reads it any more
            target.sendall(data)


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def main() -> int:
    """Relay until it is interrupted."""
    parser = argparse.ArgumentParser(prog="python -m bench.devices.relay", description=__doc__)
    parser.add_argument("listen", type=_address, metavar="HOST:PORT")
    parser.add_argument("target", type=_address, metavar="HOST:PORT")
    parser.add_argument("--latency-us", type=float, default=1000.0, help="each way")
    parser.add_argument("--gbs", type=float, default=math.inf, help="1e9 bytes a second each way; default: no limit")
    options = parser.parse_args()
    Relay(options.target, latency_us=options.latency_us, gbs=options.gbs, listen=options.listen).serve()
    return 0


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


if __name__ == "__main__":
    command.run(main)
