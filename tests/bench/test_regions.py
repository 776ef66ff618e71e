"""The memory-bound regions: models that other engines take, which compute what their names say, in one kernel each."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest

from bench import inputs
from bench.kernels.case import Case
from bench.kernels.regions import regions
from fusion import context, pipeline
from fusion.frontends import import_model

CASES = {case.name: case for case in regions()}
SMALL = [case for case in CASES.values() if case.bytes < 2 << 20]


def run(case: Case) -> tuple[dict[str, np.ndarray], np.ndarray]:
    given = inputs.draw(case.inputs, seed=0)
    return given, ort.InferenceSession(case.model.SerializeToString()).run(None, given)[0]


def test_sizes_reach_from_the_second_cache_to_the_memory() -> None:
    assert len(SMALL) == len(CASES) / 3
    assert sum(case.bytes > 100e6 for case in CASES.values()) == len(CASES) / 3


def test_bytes_are_those_of_inputs_weights_and_outputs() -> None:
    assert CASES["layer norm (decomposed) 128x768"].bytes == 4 * (2 * 128 * 768 + 2 * 768 + 2)
    assert CASES["mask (where) 12x128x128"].bytes == 4 * (2 * 12 * 128 * 128 + 2) + 128 * 128


def test_both_forms_of_layer_norm_are_one_function() -> None:
    (_, decomposed), (_, operator) = (run(CASES[f"layer norm ({form}) 128x768"]) for form in ("decomposed", "operator"))
    np.testing.assert_allclose(decomposed, operator, rtol=1e-4, atol=1e-5)


def test_rotary_turns_pairs_by_their_angle() -> None:
    given, result = run(CASES["rotary (halves) 1x12x128x64"])
    x, cos, sin = (given[name] for name in ("x", "cos", "sin"))
    low, high = x[..., :32], x[..., 32:]
    np.testing.assert_allclose(result, x * cos + np.concatenate([-high, low], -1) * sin, rtol=1e-5, atol=1e-5)


def test_what_a_mask_hides_has_no_share_in_the_softmax() -> None:
    given, result = run(CASES["softmax (where) 12x128x128"])
    assert not np.any(result[:, ~given["keep"][0]])
    np.testing.assert_allclose(result.sum(-1), 1, rtol=1e-5)


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_a_region_is_one_kernel(case: Case) -> None:
    lowered = pipeline.lower(import_model(case.model, strict=True), context.resolve("llvm", threads=2))
    assert [call.kind for call in lowered.graph.calls].count("kernel") == 1
