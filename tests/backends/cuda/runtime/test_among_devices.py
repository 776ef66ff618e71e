"""CUDA devices as some of several, on the fake driver."""

from __future__ import annotations

import numpy as np
import pytest

import fusion
from fusion.device_module import DeviceModule
from fusion.devices.offload_stage import OffloadStage
from fusion.errors import LimitError, OptionError, TargetError
from fusion.system.cpus import cpu_numbers
from tests.backends.cuda.emulator.emulate import WHY_NOT
from tests.backends.cuda.fake.fake_cuda import FakeCuda
from tests.devices.forced import divided
from tests.module import small_models

pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
CPU = f"llvm:{cpu_numbers()[0]}"


def inputs(count: int) -> list[np.ndarray]:
    return [np.random.default_rng(each).standard_normal((3, 8)).astype(np.float32) for each in range(count)]


@pytest.mark.parametrize("targets", [(CPU, "cuda:0"), ("cuda:0", "cuda:1")], ids=str)
def test_a_model_goes_from_one_to_the_other_and_back(targets: tuple[str, str], fake: FakeCuda) -> None:
    fake.reset(2)
    module, whole = divided(small_models.two_layers(), targets=targets), fusion.compile(small_models.two_layers())
    programs = [stage.program for flow in module._program.many for stage in flow.stages]
    offloaded = sum(isinstance(program, OffloadStage) for program in programs)
    assert 0 < offloaded == len(programs) // (1 + targets.count(CPU)) or offloaded == len(programs)
    arrays = inputs(5)
    for answers in (map(module, arrays), module.stream(arrays)):
        for answer, array in zip(answers, arrays, strict=True):
            np.testing.assert_allclose(answer[0], whole(array)[0], rtol=1e-5, atol=1e-6)
    with pytest.raises(OptionError, match="stream= is of a CUDA device"):
        module(arrays[0], stream=1)


def test_one_device_in_a_list_runs_all(fake: FakeCuda) -> None:
    module, (x,) = fusion.compile(small_models.mlp(), target=["cuda:0?memory=1G"]), inputs(1)
    assert isinstance(module, DeviceModule)
    np.testing.assert_allclose(module(x)[0], small_models.mlp_numpy(x), rtol=1e-5)
    assert "cuda:0?memory=1G" in module.explain()


def test_what_a_device_of_several_may_lack(fake: FakeCuda) -> None:
    with pytest.raises(TargetError, match="there is no device cuda:3") as error:
        fusion.compile(small_models.mlp(), target=[CPU, "cuda:3"])
    assert "cuda:0 (Fake 0)" in error.value.why
    with pytest.raises(LimitError):
        fusion.compile(small_models.mlp(), target=["cuda:0?memory=1K"])
