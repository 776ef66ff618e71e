"""What a CUDA device, its driver or its arrays may lack: errors that say what to do, on the fake driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import fusion
from backends.cuda.devices import A100, H100
from backends.cuda.packages import find_in_package
from backends.cuda.runtime import driver
from backends.cuda.runtime.code_file import CodeFile
from backends.cuda.runtime.found_devices import find_devices
from backends.cuda.target import figures_of, resolve_target
from backends.registry import device_runtime
from fusion.cli.main import main
from fusion.errors import (
    DeviceLostError,
    ExecutionError,
    FusionError,
    InputError,
    LimitError,
    OptionError,
    SavedFileError,
    TargetError,
)
from tests.backends.cuda.fake.fake_cuda import WHY_NOT, FakeCuda, FakeTensor, compile_fake, fake_library
from tests.backends.cuda.runtime.test_offloaded_runs import near, numbers
from tests.backends.cuda.test_models import feed_forward
from tests.forked import answer_of_child
from tests.module import small_models

Saved = dict[str, Path]


def load_and_run(path: Path) -> None:
    x = numbers(1)
    near(fusion.load(path)(x)[0], x)


@pytest.mark.parametrize("capability", [80, 86, 90, 100])
def test_a_file_runs_on_its_architectures_and_later_ones(capability: int, saved: Saved, fake: FakeCuda) -> None:
    fake.reset(capability=capability)
    load_and_run(saved["feed_forward"])


@pytest.mark.parametrize(
    ("devices", "capability", "what", "hint"),
    [(0, 80, "no CUDA device", "nvidia-smi"), (1, 75, "too old", "llvm"), (2, 70, "too old", "llvm")],
)
def test_a_machine_without_such_a_device(
    devices: int, capability: int, what: str, hint: str, saved: Saved, fake: FakeCuda
) -> None:
    fake.reset(devices, capability)
    for use in (lambda: fusion.load(saved["feed_forward"]), lambda: fusion.compile(feed_forward(), "cuda")):
        with pytest.raises(TargetError) as error:
            use()
        assert what in f"{error.value.what} {error.value.why}"
        assert hint in error.value.hint


def test_a_machine_without_a_driver(saved: Saved, fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "LIBRARY", "no-such-library.so")
    with pytest.raises(TargetError, match="no driver of CUDA devices") as error:
        fusion.load(saved["feed_forward"])
    assert "install NVIDIA's driver" in error.value.hint
    assert "a module for sm_80 and sm_90" in error.value.where
    assert "no driver" in device_runtime("cuda").describe()["cuda"]


@pytest.mark.parametrize("code", [2, 46, 802, 803, 999])
def test_a_driver_that_does_not_start(code: int, fake: FakeCuda) -> None:
    fake.fail("cuInit", code)
    with pytest.raises(TargetError, match="driver of the CUDA device") as error:
        find_devices()
    assert f"cuInit returned {code}" in error.value.why
    fake.fail("cuInit", code)
    assert isinstance(device_runtime("cuda").refusal(["sm_80"]), TargetError)


def test_a_driver_that_lacks_functions(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "LIBRARY", "libm.so.6")
    with pytest.raises(TargetError, match="driver of the CUDA device is too old"):
        find_devices()


def test_a_file_for_a_later_architecture(tmp_path: Path, fake: FakeCuda) -> None:
    fake.reset(2, 90)
    fusion.compile(small_models.mlp(), "cuda -arch=sm_90").save(tmp_path / "m.fusion")
    fake.reset(2, 80)
    with pytest.raises(TargetError, match="code for sm_90, and no CUDA device here runs that") as error:
        fusion.load(tmp_path / "m.fusion")
    assert "cuda:1 is sm_80" in error.value.why
    assert "-arch=sm_80" in error.value.hint
    fake.reset(2, 80)
    fake.set_capability(1, 90)
    module = fusion.load(tmp_path / "m.fusion")  # on the second
    with pytest.raises(InputError, match="is on another device") as told:
        module(FakeTensor(np.zeros((3, 8), np.float32)))
    assert "it is on cuda:0, and the module runs on cuda:1" in told.value.why


def test_too_little_memory_on_the_device(saved: Saved, fake: FakeCuda) -> None:
    fake.reset(memory=16 << 10)
    with pytest.raises(LimitError, match="cuda:0 has no memory for the weights") as error:
        fusion.load(saved["feed_forward"])
    assert "are free" in error.value.why
    fake.reset()
    module, x = fusion.load(saved["feed_forward"]), numbers(4)
    tensor = FakeTensor(x)
    fake.fail("cuMemAlloc_v2", 2)
    near(module(tensor)[0].numpy(), x)  # what later results would get is freed, and it is tried again
    fake.fail("cuMemHostAlloc", 2)
    with pytest.raises(LimitError, match="pinned memory") as pinned:
        module(x)
    assert "ulimit" in pinned.value.hint


def test_shared_memory_that_a_device_has_not(saved: Saved, fake: FakeCuda) -> None:
    fake.reset(capability=86, shared=1 << 10)
    with pytest.raises(TargetError, match="bytes of shared memory, and cuda:0 has 1,024") as error:
        fusion.load(saved["feed_forward"])
    assert 'target="cuda"' in error.value.hint


def test_a_kernel_that_fails_ends_the_device(saved: Saved, fake: FakeCuda) -> None:
    """A check of an index stops its kernel, which a run of arrays tells, and others when somebody waits."""
    module, wrong = fusion.load(saved["lookup"]), np.array([3, 7, 0, 6])
    with pytest.raises(ExecutionError, match="a kernel failed") as error:
        module(wrong)
    assert "CUDA_ERROR_LAUNCH_FAILED" in error.value.why
    assert "stopped the kernel" in fake.message
    with pytest.raises(DeviceLostError, match="cuda:0 is lost") as lost:
        module(np.array([1, 2, 3, 4]))
    assert "another process" in lost.value.hint
    fake.reset()
    module = fusion.load(saved["lookup"])
    y, _ = module(FakeTensor(wrong))
    with pytest.raises(ExecutionError, match="a kernel failed"):
        y.numpy()
    with pytest.raises(DeviceLostError):
        module(np.array([1, 2, 3, 4]))


@pytest.mark.parametrize("name", ["cuLaunchKernel", "cuStreamWaitEvent", "cuMemcpyHtoDAsync_v2", "cuEventRecord"])
def test_a_call_that_fails_leaves_a_module_that_runs(name: str, saved: Saved, fake: FakeCuda) -> None:
    module, x = fusion.load(saved["feed_forward"]), numbers(5)
    fake.fail(name, 999)
    with pytest.raises(ExecutionError, match="the CUDA driver refused a call") as error:
        module(x)
    assert name in error.value.why
    near(module(x)[0], x)
    tensor = FakeTensor(x)
    near(module(tensor)[0].numpy(), x)


def test_a_forked_process_has_no_device(saved: Saved, fake: FakeCuda) -> None:
    module, x = fusion.load(saved["feed_forward"]), numbers(6)
    near(module(x)[0], x)

    def child() -> list[str]:
        told = []
        for use in (lambda: module(x), lambda: fusion.load(saved["feed_forward"])):
            with pytest.raises(FusionError) as error:
                use()
            told.append(str(error.value))
        return told

    for text in answer_of_child(child):
        assert "fork" in text
        assert "spawn" in text
    near(module(x)[0], x)


def test_a_file_loads_without_any_compiler(saved: Saved, fake: FakeCuda) -> None:
    """In a process of its own, which finds the driver as others do."""
    code = (
        "import sys, numpy as np; from fusion.load_saved import load;"
        "y, z = load(sys.argv[1])(np.array([3, -1, 0, 6]));"
        "print(z.sum() == y.sum(), 'tvm' in sys.modules, 'backends.cuda.backend' in sys.modules)"
    )
    environment = {**os.environ, "LD_LIBRARY_PATH": str(fake_library().parent)}
    command = [sys.executable, "-c", code, str(saved["lookup"])]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.stdout.split() == ["True", "False", "False"], done.stderr


def test_code_that_is_damaged(saved: Saved, fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    read = zipfile.ZipFile.read
    for damage in (lambda text: text.replace('"blocks": ', '"blocks": -'), lambda text: text.replace('"archs"', '"x"')):

        def reading(self: zipfile.ZipFile, name: str, damage: Callable[[str], str] = damage) -> bytes:
            found = read(self, name)
            return damage(found.decode()).encode() if name == "launches.json" else found

        with monkeypatch.context() as patch:
            patch.setattr(zipfile.ZipFile, "read", reading)
            with pytest.raises(SavedFileError, match="damaged"):
                fusion.load(saved["feed_forward"])
    fake.fail("cuModuleLoadData", 200)
    with pytest.raises(TargetError, match="does not take the module's code"):
        fusion.load(saved["feed_forward"])


def test_a_file_from_before_launches_said_more_runs_as_then(
    saved: Saved, fake: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what they write and what was counted of them: each waits for all that share a tensor with it."""
    read, written = zipfile.ZipFile.read, list[list[tuple[int, ...]]]()

    def reading(self: zipfile.ZipFile, name: str) -> bytes:
        found = read(self, name)
        if name != "launches.json":
            return found
        described = json.loads(found)
        for launch in (launch for each in described["kernels"].values() for launch in each["launches"]):
            del launch["writes"], launch["traffic"]
        return json.dumps(described).encode()

    for each in (read, reading):
        monkeypatch.setattr(zipfile.ZipFile, "read", each)
        module = fusion.load(saved["feed_forward"])
        for seed in range(3):  # one by one, then by a graph
            x = numbers(seed)
            near(module(x)[0], x)
        (form,) = module.specializations
        assert form.code is not None
        functions = CodeFile(form.code.library()).functions.values()
        written.append([launch.writes for function in functions for launch in function.launches])
    told, untold = written
    assert all(set(some) < set(everything) for some, everything in zip(told, untold, strict=True))


def test_the_target_cuda_is_the_device_that_is_there(fake: FakeCuda, capsys: pytest.CaptureFixture[str]) -> None:
    fake.reset(capability=86, shared=99 << 10)
    module, x = fusion.compile(small_models.mlp(), "cuda", cache=False), np.ones((3, 8), np.float32)
    np.testing.assert_allclose(module(x)[0], small_models.mlp_numpy(x), rtol=1e-5)
    assert module.explain().splitlines()[0] == "compiled for sm_86 (Fake 0)"
    assert resolve_target({"arch": "sm_86"}).device.block_shared_bytes == 99 << 10
    starts = fake.calls("cuLaunchKernel"), fake.calls("cuGraphLaunch")
    with pytest.raises(OptionError, match="not timed yet"):
        module.profile({"x": x})
    assert (fake.calls("cuLaunchKernel"), fake.calls("cuGraphLaunch")) == starts
    with pytest.raises(OptionError, match="neither True nor False"):
        module(x, stream=1, wait="no")
    with pytest.raises(OptionError, match="measures kernels") as measured:
        fusion.compile(small_models.mlp(), "cuda", effort="balanced")
    assert measured.value.hint == 'use effort="fast", which chooses kernels by estimates'
    with pytest.raises(TargetError, match="'sm_75'"):
        fusion.compile(small_models.mlp(), "cuda -arch=sm_75,sm_80")
    assert resolve_target({"arch": "sm_90,sm_86"}).archs == ("sm_86", "sm_90")
    named = [resolve_target({"arch": each}) for each in ("sm_80,sm_90", "sm_90,sm_80")]
    assert {(each.archs, each.device) for each in named} == {(("sm_80", "sm_90"), A100)}
    fake.reset(2, 90)
    figures = figures_of(find_devices()[1])
    assert (figures.arch, figures.sms, figures.float32_units) == ("sm_90", 108, H100.float32_units)
    assert figures.gbs == pytest.approx(A100.gbs, rel=0.01)
    assert main(["doctor", "--json"]) == 0
    told = capsys.readouterr().out
    assert "Fake 1, sm_90, 1.1 GB" in told
    assert "of CUDA 12.4" in told


def test_open_dimensions_are_told(fake: FakeCuda) -> None:
    with pytest.raises(fusion.FusionError, match="shape of input 'x' is not known"):
        fusion.compile(small_models.mlp("batch"), "cuda")
    with pytest.raises(OptionError, match="runs on CPUs"):
        fusion.compile(small_models.mlp())(np.ones((3, 8), np.float32), stream=1)


HEADER = find_in_package("cuda_runtime", "include/cuda.h") or next(Path("/usr/local/cuda/include").glob("cuda.h"), None)


@pytest.mark.skipif(HEADER is None or bool(WHY_NOT), reason=WHY_NOT or "there is no cuda.h")
def test_the_fake_has_the_functions_of_the_header(tmp_path: Path) -> None:
    compile_fake(tmp_path / "fake.so", "-DWITH_CUDA_H", f"-I{Path(str(HEADER)).parent}", "-fsyntax-only")
