"""Calls of modules while the caller captures a stream, whose graph then has the kernels, on the fake driver."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest

import fusion
from backends.cuda.runtime import captures
from fusion.errors import ExecutionError, InputError
from tests.backends.cuda.fake.fake_cuda import FakeCapture, FakeCuda, FakeReader, FakeTensor
from tests.backends.cuda.runtime.test_offloaded_runs import near, numbers

Saved = dict[str, Path]


def test_each_launch_of_the_callers_graph_is_a_run(saved: Saved, fake: FakeCuda) -> None:
    """The call starts nothing, waits for nothing and makes no graph of its own."""
    module, capture = fusion.load(saved["feed_forward"]), FakeCapture()
    tensor = FakeTensor(numbers(0), stream=capture.stream)
    near(module(tensor, stream=capture.stream)[0].numpy(), numbers(0))
    waited = [fake.calls(name) for name in ("cuStreamSynchronize", "cuEventSynchronize")]
    capture.begin()
    (y,) = module(tensor, stream=capture.stream)
    capture.end()
    assert [fake.calls(name) for name in ("cuStreamSynchronize", "cuEventSynchronize")] == waited
    assert fake.calls("cuGraphInstantiateWithFlags") == 1  # the caller's
    for seed in (1, 2):
        capture.write(tensor, numbers(seed))
        capture.launch()
        near(y.numpy(), numbers(seed))
    near(FakeReader(y, 1).wait(), numbers(2))
    capture.destroy()


@pytest.mark.parametrize("offset", [0, 4])
def test_launches_and_other_runs_have_the_memory_one_after_the_other(
    offset: int, saved: Saved, fake: FakeCuda
) -> None:
    """An input that does not begin at 16 bytes is copied to memory that other runs copy to as well."""
    fake.mix_streams()
    module, capture = fusion.load(saved["feed_forward"]), FakeCapture()
    tensor = FakeTensor(numbers(1), offset=offset, stream=capture.stream)
    other = FakeTensor(numbers(2), offset=offset)
    capture.begin()
    capture.write(tensor, numbers(1))
    (y,) = module(tensor, stream=capture.stream)
    capture.end()
    for _ in range(3):
        before = module(other, stream=other.stream)[0]
        capture.launch()
        after = module(other, stream=other.stream)[0]
        for result, seed in ((after, 2), (y, 1), (before, 2)):
            near(result.numpy(), numbers(seed))
    capture.destroy()


def test_calls_in_one_capture_follow_one_another(saved: Saved, fake: FakeCuda) -> None:
    module, capture = fusion.load(saved["feed_forward"]), FakeCapture()
    tensors = [FakeTensor(numbers(seed), stream=capture.stream) for seed in (1, 2)]
    capture.begin()
    for tensor, seed in zip(tensors, (1, 2), strict=True):
        capture.write(tensor, numbers(seed))
    results = [module(tensor, stream=capture.stream)[0] for tensor in tensors]
    results[0].__dlpack__(stream=capture.stream)  # behind the run, in the same capture
    capture.end()
    capture.launch()
    for y, seed in zip(results, (1, 2), strict=True):
        near(y.numpy(), numbers(seed))
    capture.destroy()


def test_calls_on_streams_that_are_captured_together_follow_one_another(saved: Saved, fake: FakeCuda) -> None:
    fake.mix_streams()
    module, capture, other = fusion.load(saved["feed_forward"]), FakeCapture(), FakeCapture().stream
    tensors = [FakeTensor(numbers(1), stream=capture.stream), FakeTensor(numbers(2), stream=other)]
    for tensor, stream in zip(tensors, (capture.stream, other), strict=True):
        near(module(tensor, stream=stream)[0].numpy(), numbers(1 if stream == capture.stream else 2))
    capture.begin()
    capture.order(capture.stream, other)
    first, second = (module(tensor, stream=tensor.stream)[0] for tensor in tensors)
    first.__dlpack__(stream=other)
    capture.order(other, capture.stream)
    capture.end()
    capture.launch()
    near(first.numpy(), numbers(1))
    near(second.numpy(), numbers(2))
    capture.destroy()


def test_a_run_waits_for_the_launch_before_it(saved: Saved, fake: FakeCuda) -> None:
    module, capture, other = fusion.load(saved["feed_forward"]), FakeCapture(), FakeTensor(numbers(2))
    tensor = FakeTensor(numbers(1), stream=capture.stream)
    capture.begin()
    (y,) = module(tensor, stream=capture.stream)
    capture.end()
    capture.launch()
    with y._pool.device.current():
        assert not y._ready.is_reached()
    near(module(other, stream=other.stream)[0].numpy(), numbers(2))
    with y._pool.device.current():
        assert y._ready.is_reached()
    capture.destroy()


def test_a_graph_holds_what_its_launches_use(saved: Saved, fake: FakeCuda) -> None:
    module, capture = fusion.load(saved["feed_forward"]), FakeCapture()
    tensor = FakeTensor(numbers(1), stream=capture.stream)
    capture.begin()
    capture.write(tensor, numbers(1))
    (y,) = module(tensor, stream=capture.stream)
    capture.end()
    del module
    gc.collect()
    capture.launch()
    near(y.numpy(), numbers(1))
    del y
    gc.collect()
    capture.launch()  # which writes memory that nobody else has, and reads weights
    capture.destroy()
    again = fusion.load(saved["feed_forward"])  # gives up what graphs held that are gone
    assert fake.message == ""
    near(again(tensor)[0].numpy(), numbers(1))
    del again, tensor
    gc.collect()
    captures.let_go()
    assert fake.used() == 0


def test_a_result_that_a_graph_reads_is_written_no_more(saved: Saved, fake: FakeCuda) -> None:
    module, capture = fusion.load(saved["feed_forward"]), FakeCapture()
    tensor = FakeTensor(numbers(1), stream=capture.stream)
    (y,) = module(tensor)
    place = y._memory.address
    capture.begin()
    capsule = y.__dlpack__(stream=capture.stream)
    capture.end()
    del y, capsule
    gc.collect()
    assert all(module(tensor)[0]._memory.address != place for _ in range(4))
    capture.launch()  # waits for the run whose result it reads
    capture.destroy()


def test_what_goes_meanwhile_does_not_end_a_capture(saved: Saved, fake: FakeCuda) -> None:
    """Memory, events and modules are freed, and a result goes that the stream read before it was captured."""
    module, other, capture = fusion.load(saved["feed_forward"]), fusion.load(saved["lookup"]), FakeCapture()
    tensor = FakeTensor(numbers(1), stream=capture.stream)
    before = module(FakeTensor(numbers(3)))[0]
    reader = FakeReader(before, capture.stream)
    other(np.array([1, 2, 3, 4]))
    capture.begin()
    del before, other
    gc.collect()
    capture.write(tensor, numbers(1))
    near(module(numbers(4))[0], numbers(4))  # a run on a stream of the module's own
    (y,) = module(tensor, stream=capture.stream)
    capture.end()
    capture.launch()
    near(y.numpy(), numbers(1))
    near(reader.wait(), numbers(3))
    capture.destroy()


def test_a_capture_takes_no_arrays_of_the_host(saved: Saved, fake: FakeCuda) -> None:
    module, capture = fusion.load(saved["feed_forward"]), FakeCapture()
    tensor = FakeTensor(numbers(1), stream=capture.stream)
    wrong = FakeTensor(np.ones((2, 2), np.float32), stream=capture.stream)
    near(module(tensor)[0].numpy(), numbers(1))
    capture.begin()
    with pytest.raises(InputError, match="is not on the device"):
        module(numbers(1), stream=capture.stream)
    with pytest.raises(InputError, match="wrong rank"):
        module(wrong, stream=capture.stream)
    capture.end()  # it goes on


@pytest.mark.parametrize("name", ["cuUserObjectCreate", "cuGraphRetainUserObject", "cuEventRecordWithFlags"])
def test_what_the_driver_refuses_in_a_capture(name: str, saved: Saved, fake: FakeCuda) -> None:
    module, capture = fusion.load(saved["feed_forward"]), FakeCapture()
    tensor = FakeTensor(numbers(1), stream=capture.stream)
    near(module(tensor)[0].numpy(), numbers(1))
    capture.begin()
    fake.fail(name, 900)
    with pytest.raises(ExecutionError, match="beside a capture") as raised:
        module(tensor, stream=capture.stream)
    assert "stream=torch.cuda.current_stream()" in raised.value.hint
    capture.end()
    capture.destroy()
    near(module(tensor)[0].numpy(), numbers(1))
