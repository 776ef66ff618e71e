"""A model that does not take all sizes has one form for those like the sizes of the first call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import fusion
from backends.kernel import KernelInfo
from fusion import api
from fusion.errors import FusionError
from fusion.module.specialization import Specialization
from fusion.system import memory
from tests.symbolic.picture_models import lines, neck, same_pads

ALL = "all sizes"
MODELS = {"lines": lines(), "neck": neck(), "same pads": same_pads()}
FIRST = {"lines": (1, 8, 40), "neck": (1, 32, 48), "same pads": (1, 33, 64)}
BOUNDS = {
    "lines": "batch 0 to 65536, width 1 to 4096",
    "neck": "batch 0 to 65536, height 4 to 4096 in steps of 4, width 4 to 4096 in steps of 4",
    "same pads": "batch 0 to 65536, height 5 to 4093 in steps of 4, width 4 to 4096 in steps of 4",
}
WHY = {
    "lines": "height 8 alone, as at others ",
    "neck": "height in steps of 4, as at others the shapes of ",
    "same pads": "height in steps of 4, as at others it is another model",
}
SIZES = [("lines", 8, width) for width in (1, 2, 40, 59, 67, 200)]
SIZES += [("neck", *size) for size in ((4, 4), (8, 60), (32, 48), (100, 72), (76, 204), (4, 300))]
SIZES += [("same pads", *size) for size in ((5, 4), (9, 4), (33, 64), (37, 60), (101, 204))]
LITTLE = 60_000_000
"""Bytes that some of the imports take that tell for which sizes the model is."""
OTHERS = [("neck", 32, 60), ("same pads", 34, 64), ("same pads", 33, 66)]


class Called:
    """A module, and what is compiled of it: `ALL`, or shapes of a form of their own."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.module = fusion.compile(model, wait=True, cache=False, threads=1)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        self.session = onnxruntime.InferenceSession(model.SerializeToString(), options)

    def check(self, module: fusion.CompiledModule, batch: int, height: int, width: int) -> None:
        x = np.random.default_rng(height * width).standard_normal((batch, 3, height, width)).astype(np.float32)
        (expected,) = self.session.run(None, {"x": x})
        (found,) = module(x)
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def called() -> dict[str, Called]:
    found = {}
    for name, model in MODELS.items():
        found[name] = Called(model)
        found[name].check(found[name].module, *FIRST[name])
    return found


@pytest.mark.parametrize("name", MODELS)
def test_explain_says_which_they_are_and_why_not_all(name: str, called: dict[str, Called]) -> None:
    told = called[name].module.explain()
    assert f"all sizes: {BOUNDS[name]};" in told
    assert f"it is for sizes like those of the first call: {WHY[name]}" in told


@pytest.mark.parametrize(("name", "height", "width"), SIZES)
@pytest.mark.parametrize("batch", [1, 3])
def test_sizes_that_passes_have_not_seen(
    batch: int, name: str, height: int, width: int, called: dict[str, Called]
) -> None:
    model = called[name]
    model.check(model.module, batch, height, width)
    assert model.module.specializations[0].opened is not None
    assert model.module.specializations[0].opened.sizes([(batch, 3, height, width)]) is not None


def test_other_sizes_have_forms_of_their_own_or_the_error_they_deserve(called: dict[str, Called]) -> None:
    model = called["same pads"]
    before = len(model.module.specializations)
    for height, width in ((34, 64), (33, 66)):
        model.check(model.module, 1, height, width)
    assert len(model.module.specializations) == before + 2
    for _ in range(2):
        for name, error in (("lines", "Squeeze"), ("neck", "contradict each other")):
            with pytest.raises(FusionError, match=error):
                called[name].module(np.zeros((1, 3, 9, 49), np.float32))


@pytest.mark.parametrize(("name", "shape"), [("neck", (2, 3, 64, 96)), ("lines", (3, 3, 8, 100))])
def test_reports_count_what_kernels_do_at_any_sizes(
    name: str, shape: tuple[int, ...], called: dict[str, Called], tmp_path: Path
) -> None:
    module = called[name].module
    (static,) = fusion.compile(MODELS[name], shapes={"x": shape}, cache=False, threads=1).specializations
    module.save(tmp_path / "m.fusion")
    for each in (module, fusion.load(tmp_path / "m.fusion")):
        found = each.specializations[0].kernels_at((shape,))
        assert work_of(found) == work_of(static.kernels)
    plan = module.specializations[0].opened
    assert plan is not None
    typical = plan.dims.shapes(plan.typical_sizes)["x"]
    assert work_of(module.specializations[0].kernels) == work_of(module.specializations[0].kernels_at((typical,)))
    profile = module.profile({"x": np.zeros(shape, np.float32)}, seconds=0)
    assert profile.sizes == ", ".join(f"{name} {size}" for name, size in (plan.sizes([shape]) or {}).items())
    assert {each.kernel: each.flops for each in profile.kernels} == {
        kernel: flops * calls_of(static)[kernel] for kernel, (flops, *_) in work_of(static.kernels).items()
    }


def work_of(kernels: Mapping[str, KernelInfo]) -> dict[str, tuple[int, int, int]]:
    return {name: (info.flops, info.bytes, info.written) for name, info in kernels.items()}


def calls_of(form: Specialization) -> Counter[str]:
    assert form.code is not None
    return Counter(call.kernel for call in form.code.plan.calls)


@pytest.mark.parametrize("name", MODELS)
def test_a_saved_form_takes_the_same_sizes(name: str, called: dict[str, Called], tmp_path: Path) -> None:
    model = called[name]
    model.module.save(tmp_path / "m.fusion")
    loaded = fusion.load(tmp_path / "m.fusion")
    for _, height, width in (size for size in SIZES if size[0] == name):
        model.check(loaded, 2, height, width)
    with pytest.raises(FusionError, match="no compiled form"):
        loaded(np.zeros((1, 3, 42, 62), np.float32))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    found, compile_form, lower_for_all = list[Any](), api.compile_form, api.lower_for_all
    monkeypatch.setattr(api, "compile_form", lambda *given: (found.append(given[1]["x"]), compile_form(*given))[1])
    monkeypatch.setattr(api, "lower_for_all", lambda *given: (found.append(ALL), lower_for_all(*given))[1])
    return found


def test_a_call_that_the_model_does_not_take_is_no_first_one(made: list[Any]) -> None:
    model = Called(MODELS["neck"])
    with pytest.raises(FusionError, match="contradict each other"):
        model.module(np.zeros((1, 3, 9, 40), np.float32))
    assert "no form for all sizes: the shapes of Concat" in model.module.explain()
    for width in (40, 44):
        model.check(model.module, 1, 8, width)
    assert made == [ALL, (1, 3, 9, 40), ALL, ALL]
    assert len(model.module.specializations) == 1


def test_the_cache_holds_that_of_another_first_call(
    made: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUSION_CACHE", str(tmp_path))
    monkeypatch.setenv("FUSION_CACHE_SIZE", "1G")
    for height in (33, 37, 34, 33, 38, 33):
        module = fusion.compile(MODELS["same pads"], wait=True, threads=1)
        module(np.zeros((1, 3, height, 64), np.float32))
        assert [form.opened is not None for form in module.specializations] == [True]
    assert made == [ALL, ALL], "one for each rest, and each has its entry"


def test_a_lack_of_memory_is_no_verdict_that_is_kept(
    made: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUSION_CACHE", str(tmp_path))
    monkeypatch.setenv("FUSION_CACHE_SIZE", "1G")
    for usable, told in ((200_000, "does not fit the memory"), (1 << 40, BOUNDS["same pads"])):
        with monkeypatch.context() as patch:
            patch.setattr(memory, "usable_memory", lambda usable=usable: usable)
            module = fusion.compile(MODELS["same pads"], wait=True, threads=1)
            module(np.zeros((1, 3, 33, 64), np.float32))
        assert told in module.explain()
    assert made == [ALL, (1, 3, 33, 64), ALL]


def test_bounds_that_memory_made_narrow_are_not_kept(
    made: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Padding of 4,096 rows is too large for the first process, which has a form for fewer."""
    monkeypatch.setenv("FUSION_CACHE", str(tmp_path))
    monkeypatch.setenv("FUSION_CACHE_SIZE", "1G")
    told = list[bool]()
    for usable in (LITTLE, 1 << 40, LITTLE):
        with monkeypatch.context() as patch:
            patch.setattr(memory, "usable_memory", lambda usable=usable: usable)
            module = fusion.compile(MODELS["same pads"], wait=True, threads=1)
            module(np.zeros((1, 3, 33, 64), np.float32))
        assert [form.opened is not None for form in module.specializations] == [True]
        told.append(BOUNDS["same pads"] in module.explain())
    assert told == [False, True, True]
    assert made == [ALL, ALL]
