"""What every backend has to do: compute what it takes as torch does in float64, or say that it does not take it.

A case that a backend has other results for, or does not take, is a row of a table here, with the reason; a row that no
longer holds is an error.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

import fusion
from backends import registry
from fusion.bindings import call_name
from fusion.errors import NotInstalledError
from fusion.passes.regions import TakeRegions
from placement.cover.places import PlacesByOrder
from tests.backends.conformance.cases import CASES, COMPARISONS, SUITES, Suite
from tests.backends.opened_to_run import opened_to_run
from tests.naps import busy_nap

pytestmark = pytest.mark.usefixtures("one_process_apart")
LIBRARIES = ("onednn", "openvino", "onnxruntime", "tvm")
BACKENDS = ("cpu", *LIBRARIES)
SPECIAL = np.array([1.0, np.nan, np.inf, -np.inf, -0.0, 0.0, -2.0, 3.0], np.float32)
SOME = ("matmul, bias, relu", "conv2d", "softmax", "layer_norm")
_TOLERANCE = 1e-6
"""Of the largest result, beside twice the error of ONNX Runtime."""

EXTREMES = ("largest of an axis", "largest of the last axis", "least of an axis", "least of all axes")
MASKS = (*(f"choice by {each}" for each in COMPARISONS), "choice by what is true", "choice by isnan")
_CONSTANT = "no primitive, or one that is slower than a kernel with what is around it"
NOT_TAKEN: Mapping[str, Mapping[str, str]] = {
    "onednn": {
        "matmul of a vector": "oneDNN's operands have as many axes as the result",
        "softmax of another axis": "no kernel, but a loop for any case",
        "max_pool2d": "loses NaN, and makes a number of -inf",
        "log_softmax": "off by 1e-6",
        "layer_norm of two axes": "of the last axis only",
        "exp": "of NaN infinity",
        **dict.fromkeys(("maximum", "minimum"), "loses NaN of one operand"),
        **dict.fromkeys(("log", "erf", "sum", "sum of all axes", "mean", "prod", "variance"), _CONSTANT),
        **dict.fromkeys(("permute_dims", *EXTREMES, *MASKS), _CONSTANT),
    },
    "openvino": {
        **dict.fromkeys(("choice by greater", "choice by greater_equal"), "takes NaN to be greater than anything"),
        "choice by what is true": "makes false of NaN",
    },
    "tvm": {"choice by not_equal": "takes NaN not to differ from anything"},
}
"""The cases of which a library leaves an operator to us, and why."""
_LOSES_NAN = "loses NaN"
_NAN_ALONE = "a row with NaN or infinity has NaN at their place only"
_LIMIT = "infinity times 1 is NaN there; of -inf, ours is the limit"
_BY_PLACE = "which results lose NaN depends on where it stands, and on the width of vectors"
_BY_CPU = "of -inf, their kernels for AVX-512 have the limit, those for AVX2 NaN"
DIFFERS: Mapping[str, Mapping[str, str]] = {
    "cpu": {"gelu": _LIMIT, "matmul, residual, gelu": _LIMIT},
    "onednn": {"softmax": _NAN_ALONE, "gelu": _BY_CPU, "matmul, residual, gelu": _BY_CPU},
    "openvino": {
        **dict.fromkeys(
            ("matmul, bias, relu", "conv2d, bias, residual, relu", "relu", "clip", "exp", "maximum", "minimum",
             "max_pool2d"),
            _LOSES_NAN,
        ),
        **dict.fromkeys(EXTREMES, _BY_PLACE),
        **dict.fromkeys(("softmax", "softmax of another axis", "log_softmax"), _NAN_ALONE),
        **dict.fromkeys(("gelu", "matmul, residual, gelu"), _BY_CPU),
    },
    "onnxruntime": {"max_pool2d": _LOSES_NAN, **dict.fromkeys(EXTREMES, _BY_PLACE)},
    "tvm": {
        **dict.fromkeys(
            ("matmul, bias, relu", "conv2d, bias, residual, relu", "relu", "clip", "maximum", "minimum", "max_pool2d"),
            _LOSES_NAN,
        ),
        **dict.fromkeys(EXTREMES, _BY_PLACE),
    },
}
"""The cases in which what a backend makes of NaN and infinity differs; docs/limits.md has them."""


def compiled(mod: tvm.IRModule, backend: str, threads: int = 2) -> fusion.CompiledModule:
    """Compile it as for users: what the backend takes is opened in another process first."""
    names = [backend, "cpu", "onnxruntime"] if backend != "cpu" else ["cpu"]
    return fusion.compile(mod, backends=list(dict.fromkeys(names)), threads=threads, cache=False)


def require(backend: str) -> None:
    """Skip the test where a library is not installed."""
    if backend == "cpu":
        return
    try:
        registry.library(backend)
    except NotInstalledError as error:
        pytest.skip(f"{error.what}; {error.hint}")


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """The name of one that is installed."""
    require(request.param)
    return str(request.param)


@functools.cache
def suite(names: Sequence[str]) -> Suite:
    return Suite.of(names)


@functools.cache
def whole(backend: str, names: Sequence[str]) -> fusion.CompiledModule:
    with opened_to_run():
        return compiled(suite(names).mod, backend)


@functools.cache
def some(backend: str) -> fusion.CompiledModule:
    return compiled(Suite.of(SOME).mod, backend)


@functools.cache
def results(backend: str, special: bool) -> Mapping[str, np.ndarray]:
    return {
        case: found
        for names in SUITES
        for case, found in zip(names, whole(backend, names)(*suite(names).draw(1, special)), strict=True)
    }


@functools.cache
def expected(special: bool) -> Mapping[str, np.ndarray]:
    return {
        case: wanted
        for names in SUITES
        for case, wanted in suite(names).expected(suite(names).draw(1, special)).items()
    }


def error_of(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.nanmax(np.abs(found - wanted)) / np.nanmax(np.abs(wanted)))


@pytest.mark.parametrize("case", CASES)
def test_numbers(case: str, backend: str) -> None:
    found, wanted = results(backend, False)[case], expected(False)[case]
    assert found.shape == wanted.shape
    assert found.dtype == np.float32
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    assert error_of(found, wanted) <= 2 * error_of(results("onnxruntime", False)[case], wanted) + _TOLERANCE


def _kinds(array: np.ndarray) -> np.ndarray:
    """Return which numbers are none, and which signs the infinite ones have."""
    return np.where(np.isnan(array), 2.0, np.where(np.isinf(array), np.sign(array), 0.0))


@pytest.mark.parametrize("case", CASES)
def test_what_is_no_number_stays_so(case: str, backend: str) -> None:
    with np.errstate(over="ignore"):
        found, wanted = results(backend, True)[case], expected(True)[case].astype(np.float32)
    same = bool(np.array_equal(_kinds(found), _kinds(wanted)))
    difference = DIFFERS[backend].get(case)
    assert difference in (_BY_CPU, _BY_PLACE) or same == (difference is None), difference or "unlike torch"
    both = np.isfinite(found) & np.isfinite(wanted)
    np.testing.assert_allclose(found[both], wanted[both], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("library", LIBRARIES)
def test_what_is_taken(library: str) -> None:
    require(library)
    left = {case for names in SUITES for case in _left_to_us(library, suite(names))}
    assert left == set(NOT_TAKEN.get(library, {}))


def _left_to_us(name: str, of: Suite) -> set[str]:
    """Return the cases of which a library does not take an operator; what it takes, `results` opens."""
    library: Any = registry.library(name)
    with opened_to_run():
        taken = TakeRegions({name: library}, PlacesByOrder((1,)), 1).run(of.mod).fact
    assert taken.subgraphs
    runs = {result for region in taken.regions for result in region.names}
    return {case for case, results in of.results().items() if not results <= runs}


def test_no_mask_is_wrong(backend: str) -> None:
    """Of a mask nobody sees what NaN made it: what takes NaN for a number there is not given to a library."""
    x, y = np.repeat(SPECIAL, SPECIAL.size), np.tile(SPECIAL, SPECIAL.size)
    kinds = [relax.TensorType(x.shape, "float32")] * 2
    left, right = (relax.Var(name, kind) for name, kind in zip("xy", kinds, strict=True))
    calls = [getattr(relax.op, name)(left, right) for name in COMPARISONS]
    calls += [relax.op.isnan(left), relax.op.isinf(left), relax.op.isfinite(left), relax.op.astype(left, "bool")]
    builder = relax.BlockBuilder()
    with builder.function("main", [left, right]):
        with builder.dataflow():
            result = builder.emit_output(relax.Tuple([builder.emit(call) for call in calls]))
        builder.emit_func_output(result)
    wanted = [getattr(np, name)(x, y) for name in COMPARISONS]
    wanted += [np.isnan(x), np.isinf(x), np.isfinite(x), x.astype(bool)]
    for call, found, right_one in zip(calls, compiled(builder.get(), backend)(x, y), wanted, strict=True):
        np.testing.assert_array_equal(found, right_one, err_msg=call_name(call))


@pytest.mark.parametrize("place", [0, 6, 30, 66])
@pytest.mark.parametrize("case", EXTREMES)
def test_extremes_are_of_numbers_or_nan(case: str, place: int, backend: str) -> None:
    """Where NaN stands in a row, the result is NaN, or the extreme of some of its numbers: never one of another row."""
    (shape,) = CASES[case].inputs
    x = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
    x.reshape(-1)[place % x.size] = np.nan
    suite = Suite.of(EXTREMES)
    inputs = [x if name == case else np.zeros(CASES[name].inputs[0], np.float32) for name in EXTREMES]
    found = dict(zip(EXTREMES, extremes(backend)(*inputs), strict=True))[case]
    wanted = suite.expected(inputs)[case]
    lost = np.isnan(wanted) & ~np.isnan(found)
    np.testing.assert_array_equal(found[~lost], wanted[~lost].astype(np.float32))
    assert not lost.any() or DIFFERS[backend].get(case) == _BY_PLACE
    assert np.isin(found[lost], x[np.isfinite(x)]).all()


@functools.cache
def extremes(backend: str) -> fusion.CompiledModule:
    with opened_to_run():
        return compiled(Suite.of(EXTREMES).mod, backend)


@pytest.mark.parametrize("dtype", ["float64", "float16", "int8", "uint8", "int32", "int64", "bool"])
def test_other_dtypes_are_exact_or_not_taken(dtype: str, backend: str) -> None:
    """Values that float32, or int32, does not hold."""
    values = {
        "float64": [1 + 1e-12, -3e200], "float16": [0.1, 60000], "int8": [-128, 127], "uint8": [255, 3],
        "int32": [2**31 - 1, 2**24 + 1], "int64": [2**40 + 1, -(2**62)], "bool": [True, False],
    }  # fmt: skip
    x = np.array([values[dtype]], dtype)
    var = relax.Var("x", relax.TensorType(x.shape, dtype))
    operators = [(lambda v: relax.op.permute_dims(v, [1, 0]), np.transpose)]
    if dtype != "bool":
        operators += [(relax.op.nn.relu, lambda v: np.maximum(v, 0)), (lambda v: relax.op.maximum(v, v), np.copy)]
    builder = relax.BlockBuilder()
    with builder.function("main", [var]):
        with builder.dataflow():
            made = [build(var) for build, _ in operators]
            result = builder.emit_output(relax.Tuple([builder.emit(each) for each in made]))
        builder.emit_func_output(result)
    for found, (_, exact) in zip(compiled(builder.get(), backend)(x), operators, strict=True):
        np.testing.assert_array_equal(found, exact(x))
    library = None if backend == "cpu" else registry.library(backend)
    if backend == "openvino" and dtype != "bool":
        assert library.why_not_taken(relax.op.nn.relu(var)) == f"OpenVINO computes {dtype} as other dtypes"


def test_tensors_without_elements(backend: str) -> None:
    empty = relax.Var("x", relax.TensorType((0, 8), "float32"))
    weights = np.ones((8, 3), np.float32)
    builder = relax.BlockBuilder()
    with builder.function("main", [empty]):
        with builder.dataflow():
            product = builder.emit(relax.op.matmul(empty, relax.const(weights)))
            result = builder.emit_output(relax.op.nn.relu(product))
        builder.emit_func_output(result)
    assert compiled(builder.get(), backend)(np.zeros((0, 8), np.float32))[0].shape == (0, 3)


def test_one_thread_computes_what_two_do(backend: str) -> None:
    with opened_to_run():
        module, inputs = compiled(Suite.of(SOME).mod, backend, threads=1), Suite.of(SOME).draw(3)
    for one, two in zip(module(*inputs), some(backend)(*inputs), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6)


def test_several_callers(backend: str) -> None:
    inputs = [tuple(Suite.of(SOME).draw(seed)) for seed in range(12)]
    alone = [some(backend)(*each) for each in inputs]
    for together, wanted in zip(some(backend).map(inputs, workers=2), alone, strict=True):
        for ours, theirs in zip(together, wanted, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_two_modules_keep_their_weights(backend: str) -> None:
    """And what one returned stays as it was when the other runs."""
    one, other = Suite.of(SOME), Suite.of(SOME, seed=7)
    with opened_to_run():
        module, inputs = compiled(other.mod, backend), one.draw(4)
    for _ in range(2):
        found = zip(some(backend)(*inputs), module(*inputs), strict=True)
        wanted = zip(one.expected(inputs).values(), other.expected(inputs).values(), strict=True)
        for pair, exact in zip(found, wanted, strict=True):
            for ours, theirs in zip(pair, exact, strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_saved_module_computes_the_same(backend: str, tmp_path: Path) -> None:
    some(backend).save(tmp_path / "saved.fusion")
    inputs = Suite.of(SOME).draw(5)
    loaded = fusion.load(tmp_path / "saved.fusion")
    for ours, theirs in zip(loaded(*inputs), some(backend)(*inputs), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-7)


def test_idle_threads_sleep(backend: str) -> None:
    inputs = Suite.of(SOME).draw(6)
    busy = busy_nap(lambda: [some(backend)(*inputs) for _ in range(20)], 0.3, settle=0.0, enough=0.06)
    assert busy < 0.06, f"its threads spin, of {threading.active_count()} of Python"
