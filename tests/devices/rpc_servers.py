"""Servers of TVM RPC as processes here: what `python -m tvm.exec.rpc_server` runs, which itself wants cloudpickle."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

from tests import without_torch

KEY = "board"
_CODE = """
import sys
from tvm.rpc.server import PopenRPCServerState
PopenRPCServerState("127.0.0.1", int(sys.argv[1]), int(sys.argv[1]) + 1, key=sys.argv[2], silent=True)
"""
_START_S = 120.0


class Server:
    """A server.

    Attributes:
        target: What names it as a device.
    """

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self.target = f"rpc://127.0.0.1:{self.port}/{KEY}"
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CODE, str(self.port), KEY], start_new_session=True, stdin=subprocess.DEVNULL,
            env=without_torch.environment(),
        )  # fmt: skip

    def wait(self) -> None:
        """Wait until it takes connections."""
        deadline = time.monotonic() + _START_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1.0).close()
            except OSError:
                assert self._process.poll() is None, "the server ended"
                assert time.monotonic() < deadline, "the server does not start"
                time.sleep(0.05)
            else:
                return

    def signal(self, number: int) -> None:
        """Send a signal to it, and to the process of the session."""
        os.killpg(self._process.pid, number)

    def end(self) -> None:
        """Kill it."""
        with contextlib.suppress(ProcessLookupError):
            self.signal(signal.SIGKILL)
        self._process.wait()


@contextlib.contextmanager
def server() -> Iterator[Server]:
    """A server that takes connections, and is gone behind the block."""
    made = Server()
    try:
        made.wait()
        yield made
    finally:
        made.end()
