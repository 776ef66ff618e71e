"""Streams through stages: back-pressure, failures and ends, of which no thread is left and nothing hangs."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from onnx import helper

import fusion
from fusion.device_module import DeviceModule
from fusion.devices.deal_requests import RequestDealer, most_under_way
from fusion.devices.device_thread import DeviceThread
from fusion.devices.requests import DeviceStage, Request
from fusion.errors import ExecutionError, FusionError, InputError, LimitError, ResourceError
from tests.devices.forced import TARGETS, divided, needs_two_cpus, replicated
from tests.module import small_models

pytestmark = needs_two_cpus
X = np.ones((3, 8), np.float32)


@pytest.fixture(scope="module")
def module() -> DeviceModule:
    return divided(small_models.softmax_of_columns())


@pytest.fixture(scope="module")
def replicas() -> DeviceModule:
    return divided(small_models.softmax_of_columns(), replicated)


def _threads() -> set[threading.Thread]:
    """The threads of devices."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("fusion llvm")}


@pytest.fixture(autouse=True)
def before() -> Iterator[set[threading.Thread]]:
    """Those of other tests, which wait for calls; none may be left of this one."""
    known = _threads()
    yield known
    assert not _threads() - known


def test_back_pressure(module: DeviceModule) -> None:
    taken = list[int]()

    def items() -> Iterator[np.ndarray]:
        for number in itertools.count():
            taken.append(number)
            yield X

    stream, most = module.stream(items()), module._program.most_under_way
    for answered in range(5):
        next(stream)
        time.sleep(0.02)
        assert answered < len(taken) <= most + answered
    stream.close()


def test_a_result_waits_for_one_item_at_most(module: DeviceModule) -> None:
    taken = list[int]()

    def slow() -> Iterator[np.ndarray]:
        for number in range(4):
            taken.append(number)
            yield X
            time.sleep(0.3)

    stream = module.stream(slow())
    next(stream)
    assert len(taken) == 2 < module._program.most_under_way
    assert len(list(stream)) == 3


def test_a_request_goes_to_the_replica_that_is_free_first(replicas: DeviceModule) -> None:
    """Whatever was expected of it."""
    flows, requests = replicas._program.many, [Request(number, [X], lambda *_: None) for number in range(5)]
    dealer = RequestDealer(flows, replicas._program._ledger)

    def dealt() -> list[int]:
        return [flows.index(request.flow) for request in requests if request.flow is not None]

    for request in requests:
        dealer.add(request)
    assert dealt() == [0, 1]
    requests[1].answer.set_result(())
    assert dealt() == [0, 1, 1]
    requests[0].answer.set_exception(LimitError("full"))
    assert dealt() == [0, 1, 1, 0]
    dealer.drop()
    requests[2].cancel()
    assert dealt() == [0, 1, 1, 0]


def test_a_stream_through_unlike_replicas_takes_more_ahead(module: DeviceModule, replicas: DeviceModule) -> None:
    assert most_under_way(replicas._program.many) == (2 + 3) + (2 + 1)
    assert most_under_way(replicas._program.many[:1]) == 2
    assert most_under_way(module._program.many) == 2 * len(module._program.many[0].stages)


def test_results_of_replicas_come_in_order(replicas: DeviceModule, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the one device is slower by chance."""
    run, delays = DeviceStage.run, itertools.cycle([0.0, 0.004, 0.001])

    def dawdle(stage: DeviceStage, values: Any) -> Any:
        time.sleep(next(delays))
        return run(stage, values)

    monkeypatch.setattr(DeviceStage, "run", dawdle)
    inputs = [np.full((3, 8), number, np.float32) * X for number in range(40)]
    for (answer,), given in zip(replicas.stream(inputs), inputs, strict=True):
        np.testing.assert_array_equal(answer, replicas(given)[0])


def test_a_failing_replica_is_named(replicas: DeviceModule, monkeypatch: pytest.MonkeyPatch) -> None:
    run, calls, second = DeviceStage.run, itertools.count(), replicas._program.many[1].threads[0].device.name

    def fail(stage: DeviceStage, values: Any) -> Any:
        if stage.thread.device.name == second and next(calls) == 2:
            raise LimitError("full")
        return run(stage, values)

    monkeypatch.setattr(DeviceStage, "run", fail)
    _, error = _until_error(replicas, itertools.repeat(X))
    assert isinstance(error, LimitError)
    assert f"on the device {second}" in error.where


def test_closing_early_leaves_no_thread(module: DeviceModule, before: set[threading.Thread]) -> None:
    stream = module.stream(itertools.repeat(X))
    next(stream)
    assert len(_threads() - before) == 2
    stream.close()
    assert not _threads() - before
    never_begun = module.stream(itertools.repeat(X))
    del never_begun


def guarded() -> DeviceModule:
    """A module whose second kernel or so looks whether its indices are in range."""
    nodes = [
        helper.make_node("Add", ["i", "one"], ["j"]),
        helper.make_node("Softmax", ["x"], ["s"], axis=0),
        helper.make_node("Gather", ["s", "j"], ["g"], axis=0),
        helper.make_node("Softmax", ["g"], ["y"], axis=0),
    ]
    inputs = [("x", small_models.FLOAT, [3, 8]), ("i", small_models.INT64, [2])]
    return divided(
        small_models.model(nodes, inputs, [("y", small_models.FLOAT, [2, 8])], {"one": np.ones(2, np.int64)})
    )


def test_a_failing_stage_is_named_and_requests_under_way_are_told() -> None:
    module, good, bad = guarded(), np.array([0, 1]), np.array([0, 7])
    answers, error = _until_error(module, [(X, bad if number == 3 else good) for number in range(20)])
    assert len(answers) == 3
    assert isinstance(error, ExecutionError)
    assert "request 4" in error.where
    assert "on the device llvm:" in error.where
    assert "stage" in error.where
    assert "requests 5 to" in error.why
    with pytest.raises(ExecutionError, match="on the device llvm:"):
        module(X, bad)
    module(X, good)
    _await_idle(module)


def _until_error(module: DeviceModule, items: Any) -> tuple[list[Any], FusionError]:
    answers = list[Any]()
    with pytest.raises(FusionError) as raised:
        answers.extend(module.stream(items))
    return answers, raised.value


def _await_idle(module: DeviceModule) -> None:
    for thread in module._program.once.threads:
        thread.end()


@pytest.mark.parametrize(
    ("raised", "expected"),
    [(LimitError("full"), LimitError), (ValueError("v"), ExecutionError), (SystemExit(1), ExecutionError)],
)
def test_whatever_a_stage_raises_is_an_error_of_ours(
    module: DeviceModule, monkeypatch: pytest.MonkeyPatch, raised: BaseException, expected: type[FusionError]
) -> None:
    run, calls = DeviceStage.run, itertools.count()

    def fail(stage: DeviceStage, values: Any) -> Any:
        if next(calls) == 7:
            raise raised
        return run(stage, values)

    monkeypatch.setattr(DeviceStage, "run", fail)
    _, error = _until_error(module, itertools.repeat(X))
    assert type(error) is expected
    assert "on the device" in error.where


def test_a_thread_that_is_used_again_is_not_waited_for(module: DeviceModule) -> None:
    device = DeviceThread(module._program.once.threads[0].device)
    device.enter()
    with device._changed:  # the thread does not see that nobody used it
        thread = device.leave(0.0)
        device.enter()
    device.wait_for_end(thread)
    assert device.run(threading.current_thread) is thread
    device.wait_for_end(device.leave(0.0))
    assert thread is not None
    assert not thread.is_alive()


def test_a_stream_that_is_closed_in_the_thread_of_a_device(module: DeviceModule) -> None:
    """As garbage collection does, wherever it runs."""
    stream, closed = module.stream(itertools.repeat(X)), threading.Event()
    next(stream)
    device = module._program.many[0].threads[0]
    thread = device.run(threading.current_thread)

    def close(_: FusionError | None) -> None:
        stream.close()
        closed.set()

    device.submit((0, 0), close)
    assert closed.wait(10)
    thread.join(10)
    assert not thread.is_alive()


def test_an_error_of_a_device_keeps_no_frames_of_those_that_got_it(
    module: DeviceModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = ResourceError("not bound")
    monkeypatch.setattr(DeviceThread, "_bind", lambda _: failure)
    for _ in range(3):
        _, error = _until_error(module, [X, X, X, X])
        assert "not bound" in str(error)
        assert not error.why.startswith(";")
        with pytest.raises(ResourceError, match="not bound"):
            module._program.many[0].threads[0].run(lambda: None)
    assert failure.__traceback__ is None


@pytest.mark.filterwarnings("ignore:This process")  # of its other threads
def test_a_forked_process_takes_no_locks_of_requests_when_it_closes_a_stream(module: DeviceModule) -> None:
    stream = module.stream(itertools.repeat(X))
    next(stream)
    child = os.fork()
    if not child:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Request, "cancel", lambda _: os._exit(1))
            stream.close()
            os._exit(7)
    assert os.waitpid(child, 0)[1] >> 8 == 7
    stream.close()


def test_wrong_inputs_come_in_their_place(module: DeviceModule) -> None:
    for wrong in (np.ones((3, 9), np.float32), np.ones((3, 8)), "text", {"z": X}, (X, X)):
        answers, error = _until_error(module, [X, X, wrong, X])
        assert len(answers) == 2
        assert isinstance(error, InputError)


@pytest.fixture(scope="module")
def whole() -> DeviceModule:
    """A module that runs calls on one device."""
    module = fusion.compile(small_models.softmax_of_columns(), target=TARGETS)
    assert isinstance(module, DeviceModule)
    assert len(module._program.once.stages) == 1
    return module


def test_a_call_of_one_stage_runs_in_its_callers_thread(whole: DeviceModule, monkeypatch: pytest.MonkeyPatch) -> None:
    device, run, seen = whole._program.once.threads[0], DeviceStage.run, list[tuple[threading.Thread, set[int]]]()

    def note(stage: DeviceStage, values: Any) -> Any:
        seen.append((threading.current_thread(), os.sched_getaffinity(0)))
        return run(stage, values)

    monkeypatch.setattr(DeviceStage, "run", note)
    before = os.sched_getaffinity(0)
    whole(X)
    assert seen == [(threading.current_thread(), set(device.device.cpus))]
    assert os.sched_getaffinity(0) == before
    assert device.borrow()
    other = threading.Thread(target=whole, args=(X,))
    other.start()  # the device is busy, and the call waits for its turn
    time.sleep(0.02)
    assert len(seen) == 1
    device.give_back()
    other.join(60)
    assert len(seen) == 2
    assert seen[1][0] not in (other, threading.current_thread())
    _await_idle(whole)


def test_an_interrupt_of_a_call_in_its_callers_thread(whole: DeviceModule, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(stage: DeviceStage, values: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(DeviceStage, "run", interrupt)
        with pytest.raises(KeyboardInterrupt):
            whole(X)
    whole(X)  # the device is free again
    _await_idle(whole)


def test_what_the_items_raise_comes_in_its_place(module: DeviceModule) -> None:
    def items() -> Iterator[np.ndarray]:
        yield X
        raise RuntimeError("the end of the file")

    stream = module.stream(items())
    next(stream)
    with pytest.raises(RuntimeError, match="the end of the file"):
        next(stream)


def test_cpus_that_the_process_may_not_use_any_more(module: DeviceModule, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(process: int, cpus: Any) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    _, error = _until_error(module, [X])
    assert isinstance(error, ResourceError)
    assert "llvm:" in str(error)


def test_threads_are_bound_to_their_cpus(module: DeviceModule, monkeypatch: pytest.MonkeyPatch) -> None:
    run, seen = DeviceStage.run, dict[str, set[int]]()

    def note(stage: DeviceStage, values: Any) -> Any:
        seen[stage.thread.device.name] = os.sched_getaffinity(0)
        return run(stage, values)

    before = os.sched_getaffinity(0)
    monkeypatch.setattr(DeviceStage, "run", note)
    list(module.stream([X, X]))
    assert seen == {name: {int(name.rpartition("-")[2])} for name in TARGETS}
    assert os.sched_getaffinity(0) == before


_SCRIPT = """
import itertools, signal, sys
import fusion
import numpy as np
fusion.compile  # before TVM, which alone imports PyTorch
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
from tests.devices.forced import divided
from tests.module import small_models
module = divided(small_models.softmax_of_columns())
stream = module.stream(itertools.repeat(np.ones((3, 8), np.float32)))
next(stream)
print("ready", flush=True)
if sys.argv[1] == "interrupt":
    for _ in stream:
        pass
"""


def test_a_process_ends_with_a_stream_open() -> None:
    ways = {"exit": 0, "interrupt": -signal.SIGINT}
    pipe = subprocess.PIPE
    processes = {
        how: subprocess.Popen([sys.executable, "-c", _SCRIPT, how], stdout=pipe, stderr=pipe, text=True) for how in ways
    }
    try:
        for how, process in processes.items():
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            if how == "interrupt":
                time.sleep(0.2)
                process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=30)
            assert process.returncode == ways[how], said
            assert ("KeyboardInterrupt" in said) == (how == "interrupt")
    finally:
        for process in processes.values():
            process.kill()
