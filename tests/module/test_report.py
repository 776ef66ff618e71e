"""explain names every kernel and fallback; profile times them within what the machine can do."""

from __future__ import annotations

import json

import numpy as np
import pytest

import fusion
from backends.machine_limits import Floor, Level, MachineLimits, Stream
from fusion.errors import ShapeError
from fusion.module.program import KernelProgram
from fusion.report.measure_limits import measure_limits
from fusion.report.profile import Profile
from fusion.report.table import format_table, shorten
from tests.module import small_models


@pytest.fixture(scope="module")
def profile(mlp: fusion.CompiledModule) -> Profile:
    return mlp.profile()


def kernels(module: fusion.CompiledModule) -> set[str]:
    program = module.specializations[0].program
    assert isinstance(program, KernelProgram)
    return {call.kernel for call in program.plan.calls}


def test_explain_names_inputs_outputs_and_every_kernel(mlp: fusion.CompiledModule) -> None:
    text = mlp.explain()
    assert "x float32[3, 8]" in text
    assert "y float32[3, 4]" in text
    assert kernels(mlp)
    assert all(name in text for name in kernels(mlp))


def test_profile_covers_every_kernel(mlp: fusion.CompiledModule, profile: Profile) -> None:
    assert {kernel.kernel for kernel in profile.kernels} == kernels(mlp)
    assert all(kernel.seconds > 0 for kernel in profile.kernels)
    assert [k.seconds for k in profile.kernels] == sorted((k.seconds for k in profile.kernels), reverse=True)
    assert profile.total_s > 0


def test_profile_is_a_table_and_plain_data(profile: Profile) -> None:
    sizes, *lines = str(profile).splitlines()
    assert sizes == "at x [3, 8]"
    assert lines[0].split()[:3] == ["kernel", "calls", "ms"]
    assert len(lines) == len(profile.kernels) + 4
    data = json.loads(json.dumps(profile.as_dict()))
    assert data["kernels"][0]["calls"] >= 1
    assert data["limits"]["peak_gflops"] == profile.limits.peak_gflops


def test_profiling_leaves_the_module_right(mlp: fusion.CompiledModule, profile: Profile) -> None:
    x = np.ones((3, 8), np.float32)
    np.testing.assert_allclose(mlp(x)[0], small_models.mlp_numpy(x), rtol=1e-5, atol=1e-5)


def test_an_open_module_is_profiled_in_the_form_used_last() -> None:
    module = fusion.compile(small_models.mlp("rows"), wait=True, dynamic=False)
    with pytest.raises(ShapeError, match="not known"):
        module.profile()
    module(np.ones((2, 8), np.float32))
    assert module.profile().kernels
    assert "forms so far: 1" in module.explain()


def test_the_limits_of_the_machine_are_plausible() -> None:
    limits = measure_limits(1)
    assert 1 < limits.peak_gflops < 1000
    assert 0.5 < limits.bandwidth_gbs < 1000
    assert [level.name for level in limits.levels][-1] == "memory"
    assert all(0.5 < level.gbs < 5000 for level in limits.levels)


def test_a_floor_is_set_by_what_takes_longest() -> None:
    levels = (Level("L1", 1000, 100.0), Level("L2", 10**6, 50.0), Level("memory", 0, 10.0))
    limits = MachineLimits(1, 200.0, levels)
    assert limits.floor(2 * 10**11) == Floor(1.0, "compute")
    assert limits.floor(0, Stream(500, 1000)) == Floor(5e-9, "L1")
    # 100 kB of weights of a large model come from memory, in 10 us; the activations from L2 in 2.
    moving = limits.floor(10**5, Stream(10**5, 10**8), Stream(10**5, 2 * 10**5))
    assert (moving.seconds, moving.bound) == (pytest.approx(12e-6), "memory")
    assert limits.floor(10**7, Stream(10**5, 10**8)).bound == "compute"


def test_tables_align() -> None:
    text = format_table(("name", "ms", "note"), [("a", "1.5", "x"), ("longer", "12.25", "")])
    assert text == "name       ms  note\na         1.5  x\nlonger  12.25"
    assert shorten("abcdefghij", 7) == "ab...ij"
    assert shorten("abc", 7) == "abc"
