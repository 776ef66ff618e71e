"""Modules on a device: results, the order of what streams do, graphs, threads and memory, on the fake driver."""

from __future__ import annotations

import copy
import gc
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

import fusion
from backends.cuda.codegen import device_code
from backends.cuda.runtime.device import OpenDevice
from fusion.errors import ExecutionError, InputError, OptionError
from tests.backends.cuda.fake.fake_cuda import FakeCuda, FakeReader, FakeTensor, fake_assemble
from tests.backends.cuda.test_models import feed_forward_in_float64
from tests.module import small_models

Saved = dict[str, Path]


def numbers(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((2, 9, 32)).astype(np.float32)


def near(y: np.ndarray, x: np.ndarray) -> None:
    np.testing.assert_allclose(y, feed_forward_in_float64(x), rtol=2e-5, atol=1e-7)


def test_a_run_of_arrays_is_one_graph_in_memory_that_is_allocated_once(saved: Saved, fake: FakeCuda) -> None:
    module = fusion.load(saved["feed_forward"])
    for seed in range(4):
        x = numbers(seed)
        near(module(x)[0], x)
    assert fake.calls("cuMemAlloc_v2") == fake.calls("cuMemHostAlloc") == 1
    assert fake.calls("cuGraphInstantiateWithFlags") == 1
    assert fake.calls("cuGraphLaunch") == 3
    x = np.asfortranarray(numbers(5))
    near(module.run({"x": x})["y"], x)
    near(module(x, stream=1)[0], x)
    del module
    gc.collect()
    assert fake.used() == 0


def test_arrays_on_the_device_stay_there(saved: Saved, fake: FakeCuda) -> None:
    """Its tensors are written on another stream later than the call, and freed with the last that holds them."""
    module = fusion.load(saved["feed_forward"])
    before, results, arrays = fake.calls("cuMemcpyHtoDAsync_v2"), [], [numbers(seed) for seed in range(3)]
    for x in arrays:
        tensor = FakeTensor(x)
        results.append(module(tensor)[0])
        assert tensor.asked == [1]  # the default stream
        del tensor
    assert fake.calls("cuMemcpyHtoDAsync_v2") == before + 3  # those of the tensors
    assert fake.calls("cuMemcpyDtoHAsync_v2") == 0
    for x, y in zip(arrays, results, strict=True):
        assert (y.shape, y.dtype, y.device, y.ndim) == ((2, 9, 10), np.float32, "cuda:0", 3)
        assert "float32[2, 9, 10] on cuda:0" in repr(y)
        near(y.numpy(), x)


def test_a_result_goes_on_as_it_is(saved: Saved, fake: FakeCuda) -> None:
    """The consumer's stream waits for the run, this process does not; the memory lives as long as what was made."""
    module, doubled = fusion.load(saved["lookup"]), np.array([3, -1, 0, 6])
    y, z = module(FakeTensor(doubled))
    expected = (np.arange(84, dtype=np.float32).reshape(7, 12) / 8)[doubled]
    assert y.__dlpack_device__() == (2, 0)
    before = fake.calls("cuStreamSynchronize") + fake.calls("cuEventSynchronize")
    capsules = [z.__dlpack__(stream=stream) for stream in (None, 1, 2, -1)]
    capsules.append(z.__dlpack__(stream=1, max_version=(1, 1), dl_device=(2, 0), copy=False))
    assert fake.calls("cuStreamSynchronize") + fake.calls("cuEventSynchronize") == before
    assert ["versioned" in repr(capsule) for capsule in capsules] == [False] * 4 + [True]
    np.testing.assert_array_equal(z.numpy(), expected)
    np.testing.assert_array_equal(y.numpy(), expected.sum(1))
    np.testing.assert_array_equal(np.from_dlpack(z, device="cpu"), expected)
    used = fake.used()
    del z, y
    gc.collect()
    assert fake.used() == used  # the capsules have it
    for wrong in ({"stream": 0}, {"stream": "default"}):
        with pytest.raises(InputError, match="no stream"):
            module(FakeTensor(doubled))[0].__dlpack__(**wrong)
    with pytest.raises(BufferError, match="as it is"):
        module(FakeTensor(doubled))[0].__dlpack__(copy=True)


def test_who_reads_a_result_waits_for_the_run_on_the_stream_it_names(saved: Saved, fake: FakeCuda) -> None:
    module, x = fusion.load(saved["feed_forward"]), numbers(7)
    other = FakeTensor(x)
    for stream in (1, other.stream):
        near(FakeReader(module(FakeTensor(x))[0], stream).wait(), x)
    # The memory of a result that is gone is written again when the default stream has read it.
    reader = FakeReader(module(FakeTensor(x))[0], 1)
    module(FakeTensor(numbers(8)), stream=other.stream)[0].numpy()
    near(reader.wait(), x)


def test_memory_of_a_result_is_written_again_when_the_stream_that_was_named_has_read_it(
    saved: Saved, fake: FakeCuda
) -> None:
    module, x = fusion.load(saved["feed_forward"]), numbers(7)
    first, second = FakeTensor(x), FakeTensor(numbers(8))
    reader = FakeReader(module(first)[0], first.stream)
    module(second, stream=second.stream)[0].numpy()
    near(reader.wait(), x)


def test_a_result_may_go_while_its_memory_is_asked_for(saved: Saved, fake: FakeCuda) -> None:
    """As where the garbage collector runs under the lock."""
    module, x = fusion.load(saved["feed_forward"]), numbers(7)
    results, held = module._fixed.program._executable._results, [module(FakeTensor(x))[0]]

    class Collecting(defaultdict):  # type: ignore[type-arg]
        def __missing__(self, size: int) -> list[object]:
            held.clear()
            return super().__missing__(size)

    results._idle = Collecting(list)
    call = threading.Thread(target=module, args=(FakeTensor(x),), daemon=True)
    call.start()
    call.join(20)
    assert not call.is_alive()
    assert not held


@pytest.mark.parametrize("is_there", [False, True])
def test_what_an_error_leaves_on_a_stream_is_waited_for_under_the_lock(
    is_there: bool, saved: Saved, fake: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, x = fusion.load(saved["feed_forward"]), numbers(7)
    lock, status, others = module._fixed.program._executable._lock, OpenDevice.status, []

    def enter() -> bool:
        return lock.acquire(blocking=False) and not lock.release()

    def watched(self: OpenDevice, name: str, *arguments: object) -> int:
        if name == "cuStreamSynchronize":
            with ThreadPoolExecutor(1) as other:
                others.append(other.submit(enter).result())
        return status(self, name, *arguments)

    value = FakeTensor(x) if is_there else x
    monkeypatch.setattr(OpenDevice, "status", watched)
    fake.fail("cuEventRecord", 999)
    with pytest.raises(ExecutionError):
        module(value)
    assert others[0] is False


def test_runs_on_several_streams_have_the_memory_one_after_the_other(saved: Saved, fake: FakeCuda) -> None:
    fake.mix_streams()
    module, tensors = fusion.load(saved["feed_forward"]), [FakeTensor(numbers(seed)) for seed in range(4)]
    results = [module(tensor, stream=tensor.stream)[0] for tensor in tensors]
    for seed in (3, 1, 0, 2):
        near(results[seed].numpy(), numbers(seed))


def test_a_loop_meets_the_same_addresses_and_graphs(saved: Saved, fake: FakeCuda) -> None:
    module, x = fusion.load(saved["feed_forward"]), numbers(1)
    tensor = FakeTensor(x)
    for _ in range(6):
        near(module(tensor)[0].numpy(), x)
    assert fake.calls("cuGraphInstantiateWithFlags") == 1
    assert fake.calls("cuGraphLaunch") == 5
    held = [module(tensor)[0] for _ in range(24)]  # each with addresses of its own: graphs are dropped
    for y in held:
        near(y.numpy(), x)


def test_a_module_that_goes_ends_its_run_first(saved: Saved, fake: FakeCuda) -> None:
    module, x = fusion.load(saved["feed_forward"]), numbers(9)
    (y,) = module(FakeTensor(x))
    del module
    gc.collect()
    near(y.numpy(), x)


def test_one_module_reads_what_another_made(saved: Saved, fake: FakeCuda) -> None:
    """Nobody waits between two modules; the second is right because the default stream is one for both."""
    lookup, again = fusion.load(saved["lookup"]), fusion.load(saved["lookup"])
    x = np.array([1, 2, 3, 4])
    first, second = lookup(FakeTensor(x))[1], again(FakeTensor(x))[1]
    np.testing.assert_array_equal(first.numpy(), second.numpy())
    np.testing.assert_array_equal(lookup(x)[1], first.numpy())


def test_a_run_is_in_the_order_of_the_callers_stream(saved: Saved, fake: FakeCuda) -> None:
    module, x = fusion.load(saved["feed_forward"]), numbers(2)

    class Stream:
        def __init__(self, tensor: FakeTensor) -> None:
            self.handle = tensor.stream

        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, self.handle

    tensor = FakeTensor(x)
    for stream in (tensor.stream, Stream(tensor)):
        (y,) = module(tensor, stream=stream)
        assert tensor.asked[-1] == tensor.stream
        near(y.numpy(), x)
    near(module.run({"x": x}, stream=tensor.stream)["y"], x)
    for wrong in (0, -1, "s", True):
        with pytest.raises(OptionError, match="no stream of CUDA"):
            module(x, stream=wrong)


def test_tensors_that_kernels_cannot_read_in_place(saved: Saved, fake: FakeCuda) -> None:
    module, x = fusion.load(saved["feed_forward"]), numbers(3)
    near(module(FakeTensor(x, offset=4))[0].numpy(), x)  # it does not begin at 16 bytes
    turned = FakeTensor(x)
    turned.shape = (2, 9, 31)
    with pytest.raises(InputError, match="wrong shape"):
        module(turned)
    with pytest.raises(InputError, match="is not an array"):
        module("x")
    with pytest.raises(InputError, match="cannot be read as an array on cuda:0"):
        module(torch.empty(x.shape, device="meta"))


def test_a_copy_and_a_form_from_the_cache_run(fake: FakeCuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSION_CACHE", str(tmp_path))
    monkeypatch.setenv("FUSION_CACHE_SIZE", "1G")
    x, assembled = np.ones((3, 8), np.float32), []
    monkeypatch.setattr(device_code, "assemble", lambda *given: assembled.append(given) or fake_assemble(*given))
    module = fusion.compile(small_models.mlp(), "cuda")
    made = len(assembled)
    again = fusion.compile(small_models.mlp(), "cuda")
    assert len(assembled) == made > 0
    for each in (module, again, copy.deepcopy(again)):
        np.testing.assert_allclose(each(x)[0], small_models.mlp_numpy(x), rtol=1e-5)


def test_a_run_may_start_nothing(fake: FakeCuda) -> None:
    """Its graph has no node, and a tensor without elements has no address."""
    none = np.zeros((0, 8), np.float32)
    module = fusion.compile((torch.nn.ReLU(), (torch.zeros(0, 8),)), "cuda", cache=False)
    assert [module(none)[0].shape for _ in range(3)] == [(0, 8)] * 3
    assert [module(FakeTensor(none))[0].numpy().shape for _ in range(3)] == [(0, 8)] * 3
    assert fake.calls("cuLaunchKernel") == 0


def test_threads_call_two_modules_at_a_time(saved: Saved, fake: FakeCuda) -> None:
    modules = [fusion.load(saved["feed_forward"]) for _ in range(2)]

    def call(seed: int) -> None:
        x = numbers(seed)
        value = x if seed % 3 else FakeTensor(x)
        (y,) = modules[seed % 2](value)
        near(y if isinstance(y, np.ndarray) else y.numpy(), x)

    with ThreadPoolExecutor(4) as callers:
        list(callers.map(call, range(24)))
    assert list(fusion.load(saved["feed_forward"]).map([numbers(8)] * 2))[1][0].shape == (2, 9, 10)
