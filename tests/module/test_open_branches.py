"""Models whose If only the run decides have one form for all sizes of what they leave open."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from onnx import GraphProto
from onnx.helper import make_node as node

import fusion
from fusion.module.program import KernelProgram
from tests.frontends.models import branch, choose
from tests.module import small_models
from tests.module.open_models import OpenModel
from tests.module.small_models import BOOL, FLOAT

ROWS = (1, 2, 0, 7, 131, 500)
DECISIONS = list(product((True, False), repeat=2))
_POSITIONS = 512


def _numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32) / 4


def _inner() -> GraphProto:
    """Return sigmoid(h @ w1), x if d, else tanh(h @ w1) @ own + positions[:rows], h."""
    then = [
        node("MatMul", ["h", "w1"], ["i0"]),
        node("Sigmoid", ["i0"], ["i1"]),
        node("Identity", ["x"], ["i2"]),
    ]
    other = [
        node("Shape", ["h"], ["rows"], start=0, end=1),
        node("Slice", ["positions", "zero", "rows"], ["used"]),
        node("MatMul", ["h", "w1"], ["j0"]),
        node("Tanh", ["j0"], ["j1"]),
        node("MatMul", ["j1", "own"], ["j2"]),
        node("Add", ["j2", "used"], ["j3"]),
        node("Identity", ["h"], ["j4"]),
    ]
    weights = {"own": _numbers(16, 16), "positions": _numbers(_POSITIONS, 16), "zero": np.zeros(1, np.int64)}
    decided = choose("d", ["k0", "k1"], branch(then, ["i1", "i2"]), branch(other, ["j3", "j4"], weights))
    return branch([decided], ["k0", "k1"])


def network() -> OpenModel:
    """Return h = relu(x); p, q = tanh(h @ w1) @ w2, h if c else those of `_inner`; y = softmax(p @ w2 + q)."""
    then = [
        node("MatMul", ["h", "w1"], ["t0"]),
        node("Tanh", ["t0"], ["t1"]),
        node("MatMul", ["t1", "w2"], ["t2"]),
        node("Identity", ["h"], ["t3"]),
    ]
    nodes = [
        node("Relu", ["x"], ["h"]),
        choose("c", ["p", "q"], branch(then, ["t2", "t3"]), _inner()),
        node("MatMul", ["p", "w2"], ["m"]),
        node("Add", ["m", "q"], ["s"]),
        node("Softmax", ["s"], ["y"], axis=1),
    ]
    weights = {"w1": _numbers(16, 16), "w2": _numbers(16, 16) + 1}
    inputs = [("c", BOOL, []), ("d", BOOL, []), ("x", FLOAT, ["rows", 16])]
    return OpenModel(small_models.model(nodes, inputs, [("y", FLOAT, ["rows", 16])], weights))


NETWORK = network()


def arrays(rows: int, decided: tuple[bool, bool]) -> dict[str, np.ndarray]:
    x = np.random.default_rng(rows).standard_normal((rows, 16)).astype(np.float32)
    c, d = map(np.array, decided)
    return {"c": c, "d": d, "x": x}


@pytest.fixture(scope="module")
def module() -> fusion.CompiledModule:
    made = fusion.compile(NETWORK.proto, threads=2, wait=True, strict=True)
    made.run(arrays(3, (True, True)))
    return made


def check(module: fusion.CompiledModule, feeds: dict[str, np.ndarray]) -> None:
    np.testing.assert_allclose(module.run(feeds)["y"], NETWORK.expected(feeds)["y"], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("decided", DECISIONS, ids=str)
def test_the_branch_that_the_condition_names_runs_at_any_size(
    module: fusion.CompiledModule, decided: tuple[bool, bool]
) -> None:
    for rows in ROWS:
        check(module, arrays(rows, decided))
    assert len(module.specializations) == 1


def test_a_loaded_module_has_its_branches(module: fusion.CompiledModule, tmp_path: Path) -> None:
    module.save(tmp_path / "m.fusion")
    loaded = fusion.load(tmp_path / "m.fusion")
    for rows, decided in product((5, 77), DECISIONS):
        check(loaded, arrays(rows, decided))


def test_branches_share_memory_and_reports_count_the_one_that_was_taken(module: fusion.CompiledModule) -> None:
    (form,) = module.specializations
    program = form.program
    assert isinstance(program, KernelProgram)
    conditions = {tuple(each.value for each in call.conditions) for call in program.plan.calls}
    assert conditions >= {(), (True,), (False, True), (False, False)}
    kernels = {decided: {each.kernel for each in module.profile(arrays(9, decided)).kernels} for decided in DECISIONS}
    assert any("sigmoid" in name for name in kernels[False, True])
    assert not any("sigmoid" in name for name in kernels[False, False] | kernels[True, True])
    assert kernels[True, True] == kernels[True, False]
    assert "Sigmoid" in module.explain() or "sigmoid" in module.explain()


def test_a_condition_may_be_computed() -> None:
    """It lies in memory of its own, which is not as large as the sizes of a call."""
    then, other = (branch([node(kind, ["s", "s"], [kind])], [kind]) for kind in ("Add", "Mul"))
    nodes = [
        node("Relu", ["x"], ["s"]),
        node("ReduceMean", ["x"], ["mean"], keepdims=0),
        node("Greater", ["mean", "zero"], ["c"]),
        choose("c", ["r"], then, other),
        node("Tanh", ["r"], ["y"]),
    ]
    values = [("x", FLOAT, ["rows", 16])], [("y", FLOAT, ["rows", 16])]
    model = OpenModel(small_models.model(nodes, *values, {"zero": np.zeros((), np.float32)}))
    module = fusion.compile(model.proto, wait=True)
    for rows, sign in product(filter(None, ROWS), (1, -1)):
        feeds = {"x": sign * np.abs(np.random.default_rng(rows).standard_normal((rows, 16), np.float32))}
        np.testing.assert_allclose(module.run(feeds)["y"], model.expected(feeds)["y"], rtol=1e-4, atol=1e-6)
    assert len(module.specializations) == 1
