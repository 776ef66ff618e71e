"""Servers of TVM RPC as processes here: what `python -m tvm.exec.rpc_server` runs, which itself wants cloudpickle."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence

KEY = "board"
_CODE = """
import sys
from tvm.rpc.server import PopenRPCServerState
tracker = ("127.0.0.1", int(sys.argv[3])) if int(sys.argv[3]) else None
PopenRPCServerState(
    "127.0.0.1", int(sys.argv[1]), int(sys.argv[1]) + 1, key=sys.argv[2], silent=True, tracker_addr=tracker
)
print("ready", flush=True)
"""
_START_S = 120.0


class RpcServerProcess:
    """A server of TVM RPC in a process of its own.

    Attributes:
        target: What names it as a device.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        before: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        tracker: int = 0,
    ) -> None:
        """Start it on `port` of the loopback device, or on a free one.

        Args:
            tracker: The port of a tracker there that is to know it; 0 for none.
            before: What its command begins with.
            environment: Its variables; None for those of this process.
        """
        self.port = port or free_port()
        self.target = f"rpc://127.0.0.1:{self.port}/{KEY}"
        self._process = subprocess.Popen(
            [*before, sys.executable, "-c", _CODE, str(self.port), KEY, str(tracker)],
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if tracker else None,  # a line for each file that is read
            env=environment,
        )

    def wait(self) -> None:
        """Wait until it takes connections."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], _START_S)
        assert ready, "the server does not start"
        assert self._process.stdout.readline() == b"ready\n", "the server ended"

    def signal(self, number: int) -> None:
        """Send a signal to it, and to the process of the session."""
        os.killpg(self._process.pid, number)

    def end(self) -> None:
        """Kill it."""
        with contextlib.suppress(ProcessLookupError):
            self.signal(signal.SIGKILL)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def free_port() -> int:
    """Return a port of the loopback device that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def wait_for(port: int) -> None:
    """Wait until somebody listens on a port of the loopback device."""
    deadline = time.monotonic() + _START_S
    while True:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 1.0).close()
            return
        assert time.monotonic() < deadline, "nobody listens"
        time.sleep(0.05)


@contextlib.contextmanager
def server(environment: Mapping[str, str] | None = None) -> Iterator[RpcServerProcess]:
    """A server that takes connections, and is gone behind the block; `environment` as of `RpcServerProcess`."""
    made = RpcServerProcess(environment=environment)
    try:
        made.wait()
        yield made
    finally:
        made.end()
