"""Devices of another process by TVM RPC: results, and whatever becomes of the server."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator

import numpy as np
import pytest

import fusion
from bench.devices.rpc_servers import KEY, RpcServerProcess, free_port, server, wait_for
from fusion.client_watch import watch_code
from fusion.device_module import DeviceModule
from fusion.devices import rpc_session
from fusion.devices.targets import parse_devices
from fusion.errors import DeviceLostError, ExecutionError, TargetError
from tests import without_torch
from tests.devices.forced import TARGETS, alternating, divided, replicated
from tests.devices.test_runs import arrays, concatenated
from tests.forked import answer_of_child
from tests.module import small_models

LOCAL = TARGETS[0]
X = np.ones((3, 8), np.float32)
LOST_S = 5.0
"""In which a server that is lost must be told."""
DEADLINE_S = 60.0
"""For what must not hang."""
_RESULTS = 100_000
"""Which take a minute or two, where nothing interrupts."""


@pytest.fixture(scope="module")
def board() -> Iterator[RpcServerProcess]:
    with server(without_torch.environment()) as made:
        yield made


@pytest.mark.parametrize("stream", [alternating, replicated])
def test_results_are_those_of_the_whole_model(board: RpcServerProcess, stream: object) -> None:
    module = divided(concatenated(), stream, [LOCAL, board.target])  # type: ignore[arg-type]
    whole, inputs = fusion.compile(concatenated(), threads=1), arrays(6)
    for answers in ([module(array) for array in inputs], list(module.stream(inputs))):
        for answer, array in zip(answers, inputs, strict=True):
            for ours, theirs in zip(answer, whole(array), strict=True):
                np.testing.assert_array_equal(ours, theirs)
    del module  # with it its threads end, which wait for calls
    until = time.monotonic() + LOST_S / 2
    while (left := [each.name for each in threading.enumerate() if each.name.startswith("fusion rpc")]) != []:
        assert time.monotonic() < until, left
        time.sleep(0.02)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let SIGINT interrupt the test: workers of pytest-xdist ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_leaves_the_connection_as_it_is(board: RpcServerProcess) -> None:
    module = fusion.compile(small_models.softmax_of_columns(), target=[board.target])
    assert isinstance(module, DeviceModule)
    expected = module(X)[0]
    for results in (module.stream(itertools.repeat(X)), (module(X) for _ in itertools.count())):
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            deque(itertools.islice(results, _RESULTS), maxlen=0)
        timer.join()
        np.testing.assert_array_equal(module(X)[0], expected)
        np.testing.assert_array_equal(next(module.stream([X]))[0], expected)


def test_a_forked_process_leaves_the_connection_to_the_other(board: RpcServerProcess) -> None:
    """It told the server to end the session, when the module was garbage there."""
    module = fusion.compile(small_models.mlp(), target=[board.target])

    def drop() -> str:
        nonlocal module
        with pytest.raises(DeviceLostError, match="came out of a fork"):
            module(X)
        del module
        gc.collect()
        return "dropped"

    assert answer_of_child(drop) == "dropped"
    np.testing.assert_allclose(module(X)[0], small_models.mlp_numpy(X), rtol=1e-4, atol=1e-5)


def test_a_server_is_planned_for(board: RpcServerProcess) -> None:
    target = f"{board.target}?memory=64M&timeout=30"
    module = fusion.compile(small_models.mlp(), target=[LOCAL, target], effort="balanced", database=False)
    assert isinstance(module, DeviceModule)
    assert target in module.explain()
    np.testing.assert_allclose(module(X)[0], small_models.mlp_numpy(X), rtol=1e-4, atol=1e-5)
    alone = fusion.compile(small_models.mlp(), target=[target])
    np.testing.assert_allclose(alone(X)[0], small_models.mlp_numpy(X), rtol=1e-4, atol=1e-5)
    with pytest.raises(ExecutionError, match="refused a call"):
        alone._program.once.stages[0].program._session.call(lambda: int("no number"))  # type: ignore[attr-defined]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_lost_server_is_an_error_that_names_it(board: RpcServerProcess, number: int) -> None:
    """It is killed, or stops: nothing hangs, no thread is left, what was under way is told, and the server that is not
    lost serves others at once."""
    with server(without_torch.environment()) as made:
        before = set(threading.enumerate())
        module = divided(small_models.softmax_of_columns(), targets=[board.target, f"{made.target}?timeout=2"])
        stream = module.stream(itertools.repeat(X))
        for _ in range(3):
            next(stream)
        made.signal(number)
        started = time.monotonic()
        with pytest.raises(DeviceLostError) as lost:
            list(stream)
        assert time.monotonic() < started + LOST_S
        assert made.target in lost.value.what
        assert "request" in lost.value.where  # there, or on the other device, whose connection ended
        assert "under way behind it" in lost.value.why
        with pytest.raises(DeviceLostError, match="is lost"):
            module(X)
        for thread in module._program.once.threads:
            thread.end()
        assert set(threading.enumerate()) <= before
        again = fusion.compile(small_models.mlp(), target=[f"{board.target}?timeout=3"])  # the error holds the module
        np.testing.assert_allclose(again(X)[0], small_models.mlp_numpy(X), rtol=1e-4, atol=1e-5)
        made.signal(signal.SIGCONT) if number == signal.SIGSTOP else None
        del again
        gc.collect()  # the next test has the server that is not lost


def test_what_frees_tells_a_server_that_stopped_from_this_process_that_did() -> None:
    with server(without_torch.environment()) as made:
        module = fusion.compile(small_models.mlp(), target=[f"{made.target}?timeout=2"])
        session = module._program.once.stages[0].program._session  # type: ignore[attr-defined]
        session.call(lambda: time.sleep(2.1), frees=True)  # as if this process had been stopped
        np.testing.assert_allclose(module(X)[0], small_models.mlp_numpy(X), rtol=1e-4, atol=1e-5)
        there = [session.call(lambda: session.empty((8,), "float32"))]
        made.signal(signal.SIGSTOP)
        with pytest.raises(DeviceLostError, match="did not answer in"):
            session.call(there.clear, frees=True)


_COPYING = """
import sys
from fusion.devices.rpc_session import RpcSession
from fusion.devices.targets import parse_devices
session = RpcSession(*parse_devices(sys.argv[1:]))
there = session.empty((1 << 25,), "uint8")
session.call(there.numpy)
print("copies", flush=True)
while True:
    session.call(there.numpy)
"""


@pytest.mark.skipif(not watch_code(), reason="the library that servers are sent was not compiled")
def test_a_client_that_is_killed_in_a_call_leaves_the_server_to_others() -> None:
    """TVM's server ended for good, as it could not send what the client had asked for."""
    with server(without_torch.environment()) as made:
        with subprocess.Popen(
            [sys.executable, "-c", _COPYING, made.target], env=without_torch.environment(),
            stdout=subprocess.PIPE,
        ) as client:
            assert client.stdout is not None
            assert client.stdout.readline() == b"copies\n"
            time.sleep(0.1)
            client.kill()
        module = fusion.compile(small_models.mlp(), target=[made.target])
        np.testing.assert_allclose(module(X)[0], small_models.mlp_numpy(X), rtol=1e-4, atol=1e-5)


def test_a_server_behind_a_slow_link(board: RpcServerProcess) -> None:
    """What copies take is measured, and what a link that breaks takes with it is told."""
    port, here = free_port(), "127.0.0.1"
    words = [f"{here}:{port}", f"{here}:{board.port}", "--latency-us", "5000", "--gbs", "0.05"]
    # A process: calls of TVM RPC let no other thread of this one run Python.
    relay = subprocess.Popen([sys.executable, "-m", "bench.devices.relay", *words])
    try:
        wait_for(port)
        module = divided(small_models.softmax_of_columns(), targets=[LOCAL, f"rpc://{here}:{port}/{KEY}"])
        link = module._program.plans.problem.topology.links[0][1]
        assert 20_000 <= link.latency_us < 200_000  # to each copy belong two calls, there and back; more on a busy host
        assert link.gbs < 0.06
        stream = module.stream(itertools.repeat(X))
        next(stream)
        relay.kill()
        started = time.monotonic()
        with pytest.raises(DeviceLostError, match="is lost"):
            list(stream)
        assert time.monotonic() < started + LOST_S
    finally:
        relay.kill()
        relay.wait()


def test_what_is_no_server_is_told(board: RpcServerProcess) -> None:
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for target, told in (
        (board.target + "-other", "cannot connect"),
        ("rpc://127.0.0.1:1/board", "python -m tvm.exec.rpc_server"),
    ):
        with pytest.raises(TargetError, match=told):
            fusion.compile(small_models.mlp(), target=[LOCAL, target])
    module = fusion.compile(small_models.mlp(), target=[board.target])
    with pytest.raises(TargetError, match="one session at a time"):
        fusion.compile(small_models.mlp(), target=[board.target])
    del module
    gc.collect()
    until = time.monotonic() + DEADLINE_S
    while len(os.listdir("/proc/self/fd")) > before + 1 and time.monotonic() < until:  # what others have open now
        time.sleep(0.05)
    # TVM leaves the socket of a handshake open that failed.
    assert len(os.listdir("/proc/self/fd")) <= before + 1


def test_a_server_without_the_compiler_is_told(board: RpcServerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()
    monkeypatch.setattr(rpc_session, "_CPU", "what.no.server.has")
    with pytest.raises(TargetError, match="install apache-tvm"):
        rpc_session.RpcSession(parse_devices([board.target])[0])  # type: ignore[arg-type]
