"""Random models with open sizes are what ONNX Runtime makes of them, and as their static forms, at any sizes, 0 and 1
included."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

import fusion
from fusion.errors import FusionError
from tests.symbolic.random_models import BATCH, LENGTH, OTHER, STEPS, WIDTH, random_model, random_symbols
from tests.symbolic.random_pictures import random_pictures
from tests.symbolic.random_steps import OPEN_STEPS

SIZES = ((2, 5), (1, 1), (3, 17), (7, 2), (1, 30), (0, 3), (2, 300))
OF_SYMBOL = {BATCH: (0, 1, 2, 3, 7), LENGTH: (0, 1, 5, 17, 30), OTHER: (0, 1, 4, 16, 300)}
"""Each is tried once, in a random order."""


@pytest.mark.parametrize("seed", range(7))
def test_sizes_the_passes_have_not_seen(seed: int) -> None:
    model = random_model(seed)
    module = fusion.compile(model, wait=True, cache=False, threads=1 + seed % 2)
    inputs = [[_normal(batch, length)] for batch, length in SIZES]
    expected = [_of_onnx_runtime(model, each) for each in inputs]
    for given, wanted in zip(inputs, expected, strict=True):
        if wanted is not None:
            _check(module(*given), wanted, bool(given[0].size))
    # A table of positions ends before the longest.
    assert sum(wanted is not None for wanted in expected) >= len(SIZES) - 1
    assert [form.opened is not None for form in module.specializations] == [True], module.explain()


@pytest.mark.filterwarnings("ignore::fusion.errors.ManyFormsWarning")  # as static forms are asked for
@pytest.mark.parametrize("seed", range(6))
def test_random_symbols_are_as_static_forms_at_five_sizes(seed: int) -> None:
    symbols = random_symbols(seed)
    model = random_model(seed, symbols=symbols)
    module = fusion.compile(model, wait=True, cache=False, threads=1 + seed % 2)
    static = fusion.compile(model, wait=True, cache=False, threads=1 + seed % 2, dynamic=False)
    rng, ran = np.random.default_rng(seed), 0
    for sizes in zip(*(rng.permutation(each) for each in OF_SYMBOL.values()), strict=True):
        inputs = _inputs(symbols, dict(zip(OF_SYMBOL, map(int, sizes), strict=True)))
        if _of_onnx_runtime(model, inputs) is None:
            continue  # it has no first row of none
        forms = len(module.specializations)
        _check(module(*inputs), static(*inputs), True)
        ran += 1
        assert len(module.specializations) == max(1, forms), module.explain()
    assert ran >= 3


@pytest.mark.filterwarnings("ignore::fusion.errors.ManyFormsWarning")  # not all have one form
@pytest.mark.parametrize("seed", range(4))
def test_operators_over_open_axes(seed: int) -> None:
    """ONNX Runtime ends the process where some of them have nothing: there it is the static form that is asked."""
    symbols = random_symbols(seed)
    model = random_model(seed, steps=10, symbols=symbols, drawn=(*OPEN_STEPS, *STEPS))
    module = fusion.compile(model, wait=True, cache=False, threads=1 + seed % 2)
    ran = 0
    for batch, length, other in ((3, 17, 16), (1, 1, 1), (2, 5, 4)):
        inputs = _inputs(symbols, {BATCH: batch, LENGTH: length, OTHER: other})
        wanted = _of_onnx_runtime(model, inputs)
        if wanted is not None:
            _check(module(*inputs), wanted, True)
            ran += 1
    assert ran
    static = fusion.compile(model, wait=True, cache=False, threads=1 + seed % 2, dynamic=False)
    nothing = _inputs(symbols, {BATCH: 2, LENGTH: 0, OTHER: 4})
    found, expected = (_results(each, nothing) for each in (module, static))
    assert (found is None) == (expected is None)
    _check(found or (), expected or (), True)


@pytest.mark.filterwarnings("ignore::fusion.errors.ManyFormsWarning")  # not all have one form
@pytest.mark.parametrize("seed", range(6))
def test_means_over_windows_of_any_pictures(seed: int) -> None:
    model = random_pictures(seed)
    module = fusion.compile(model, wait=True, cache=False, threads=1 + seed % 2)
    for batch, height, width in ((2, 19, 24), (1, 33, 57), (3, 40, 17), (1, 100, 64)):
        given = np.random.default_rng(height).standard_normal((batch, 3, height, width)).astype(np.float32)
        wanted = _of_onnx_runtime(model, [given])
        assert wanted is not None
        _check(module(given), wanted, True)


def _inputs(symbols: dict[str, int | str], sizes: dict[str, int]) -> list[np.ndarray]:
    """Return inputs of a model that declares `symbols`: those that are one have the first of their sizes."""
    known: dict[str, int] = {}
    batch, length, other = (
        known.setdefault(each, sizes[name]) if isinstance(each, str) else each for name, each in symbols.items()
    )
    return [_normal(batch, length), _normal(batch, other)]


def _results(module: fusion.CompiledModule, inputs: Sequence[np.ndarray]) -> list[np.ndarray] | None:
    """Return what a module makes of inputs; None where it refuses their sizes."""
    try:
        return list(module(*inputs))
    except FusionError:
        return None


def _normal(batch: int, length: int) -> np.ndarray:
    return np.random.default_rng(length).standard_normal((batch, length, WIDTH)).astype(np.float32)


def _check(results: Sequence[np.ndarray], expected: Sequence[np.ndarray], same_shapes: bool) -> None:
    """Compare results; of inputs without elements ONNX Runtime keeps axes that it takes means over."""
    for result, wanted in zip(results, expected, strict=True):
        assert result.shape == wanted.shape or not (same_shapes or result.size or wanted.size)
        if result.shape == wanted.shape:
            np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)


def _of_onnx_runtime(model: onnx.ModelProto, inputs: Sequence[np.ndarray]) -> list[np.ndarray] | None:
    """Return the outputs; None where ONNX Runtime refuses these sizes."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
        return list(session.run(None, dict(zip("xy", inputs, strict=False))))
    except (ort_errors.Fail, ort_errors.InvalidArgument, ort_errors.RuntimeException):
        return None
