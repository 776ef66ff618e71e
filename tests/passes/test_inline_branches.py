"""The branches of run-time conditions are put into `main`, and nothing else is touched."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax, tirx

from fusion.bindings import Bindings
from fusion.frontends.imported import branch_call, read_branch_call
from fusion.passes.inline_branches import InlineBranches
from tests.passes.modules import build_alone, execute, module, normal

X = normal(2, 3)
TENSOR = relax.TensorType((2, 3), "float32")
Body = Callable[[relax.BlockBuilder, relax.Var], relax.Expr]


def lowered(build: Callable[..., relax.Expr], arrays: Sequence[np.ndarray]) -> tvm.IRModule:
    """Return `build` as kernels and calls of them."""
    return relax.transform.LegalizeOps()(module(build, arrays))


def over_x(body: Callable[[relax.Var], relax.Expr]) -> tvm.IRModule:
    """Return a branch that computes `body` of x[2, 3]."""
    return lowered(lambda builder, x: body(x), [X])


def choosing(then: str, otherwise: str) -> tvm.IRModule:
    """Return `main(x, c)`, abs of what the branch that c names makes of x."""

    def build(builder: relax.BlockBuilder, x: relax.Var, c: relax.Var) -> relax.Expr:
        return relax.op.abs(builder.emit(branch_call(c, then, otherwise, [x], TENSOR)))

    return lowered(build, [X, np.array(True)])


def inline(branches: Mapping[str, tvm.IRModule], mod: tvm.IRModule) -> tvm.IRModule:
    """Return what the pass makes of `mod`; asserts that twice is the same as once and that its input is untouched."""
    rewrite, same = InlineBranches(branches), mod.clone()
    after = rewrite(mod)
    assert tvm_ffi.structural_equal(mod, same), "the pass changed its input"
    relax.analysis.well_formed(after)
    assert tvm_ffi.structural_equal(rewrite(after), after)
    return after


def kernels(mod: tvm.IRModule) -> set[str]:
    """Return the names of the kernels in `mod`."""
    return {symbol.name_hint for symbol, func in mod.functions.items() if isinstance(func, tirx.PrimFunc)}


def check(mod: tvm.IRModule, then: np.ndarray, otherwise: np.ndarray) -> None:
    """Run `mod` on both conditions."""
    executable = build_alone(mod)
    for value, expected in ((True, then), (False, otherwise)):
        (found,) = execute(executable, [X, np.array(value)])
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_call_becomes_an_if() -> None:
    branches = {"a": over_x(relax.op.exp), "b": over_x(lambda x: relax.op.add(x, relax.op.exp(x)))}
    after = inline(branches, choosing("a", "b"))
    assert [isinstance(value, relax.If) for _, value in Bindings.of(after["main"]).values.items()] == [True, False]
    # exp is one kernel in both branches.
    assert kernels(after) == {"tir_exp", "add", "tir_abs"}
    check(after, np.exp(X), np.abs(X + np.exp(X)))


def test_kernels_of_one_name_that_differ_stay_apart() -> None:
    double, triple = (over_x(lambda x, by=by: relax.op.multiply(x, relax.const(by))) for by in (2.0, 3.0))
    assert kernels(double) == kernels(triple)
    after = inline({"double": double, "triple": triple}, choosing("double", "triple"))
    assert len(kernels(after)) == 3
    check(after, np.abs(2 * X), np.abs(3 * X))


def test_branches_nest() -> None:
    def outer(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        c = builder.emit(relax.op.less(relax.op.sum(x), relax.const(float(X.sum()) + 1)))
        return relax.op.negative(builder.emit(branch_call(c, "exp", "abs", [x], TENSOR)))

    branches = {"exp": over_x(relax.op.exp), "abs": over_x(relax.op.abs), "outer": lowered(outer, [X])}
    branches["sine"] = over_x(relax.op.sin)
    check(inline(branches, choosing("outer", "sine")), np.exp(X), np.abs(np.sin(X)))


def test_branches_that_nobody_calls_leave_nothing() -> None:
    branches = {name: over_x(op) for name, op in (("a", relax.op.exp), ("b", relax.op.sin), ("dead", relax.op.cos))}
    assert kernels(inline(branches, choosing("a", "b"))) == {"tir_exp", "tir_sin", "tir_abs"}
    plain = over_x(relax.op.exp)
    assert tvm_ffi.structural_equal(inline(branches, plain), plain)


def _no_arguments(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return relax.op.null_value()


def _other_function(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return relax.op.call_pure_packed("fusion.fallback", tvm.ir.StringImm("a"), x, ty_args=TENSOR)


def _other_operator(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return relax.op.call_dps_packed("fusion.branch", (x,), TENSOR)


@pytest.mark.parametrize("body", [_no_arguments, _other_function, _other_operator])
def test_other_calls_stay(body: Body) -> None:
    (value,) = Bindings.of(module(body, [X])["main"]).values.values()
    assert isinstance(value, relax.Call)
    assert read_branch_call(value) is None
    before = module(body, [X])
    assert tvm_ffi.structural_equal(inline({"a": over_x(relax.op.exp)}, before), before)
