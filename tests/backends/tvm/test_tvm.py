"""What TVM's own lowering takes, beside what the conformance tests ask of every backend."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

import fusion
from backends import registry
from tests.module.small_models import mlp, mlp_numpy

pytestmark = pytest.mark.usefixtures("one_process_apart")
X = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)


def test_it_runs_all_of_a_model() -> None:
    module = fusion.compile(mlp(), backends=["tvm"], threads=2, cache=False)
    assert module.placement.backends == ("tvm",)
    np.testing.assert_allclose(module(X)[0], mlp_numpy(X), rtol=1e-4, atol=1e-5)


def test_behind_our_kernels_and_unnamed_it_runs_nothing() -> None:
    assert fusion.compile(mlp(), backends=["cpu", "tvm"], cache=False).placement.backends == ("cpu",)
    assert fusion.compile(mlp(), cache=False).placement.backends == ("cpu",)


def test_the_lowest_integer_by_minus_one_is_what_it_is_here() -> None:
    """TVM's own forms end the process; by 0, a check in front of the region is an error."""
    params = [relax.Var(name, relax.TensorType((4,), "int32")) for name in "ab"]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            calls = [getattr(relax.op, name)(*params) for name in ("divide", "floor_divide", "floor_mod")]
            result = builder.emit_output(relax.Tuple([builder.emit(call) for call in calls]))
        builder.emit_func_output(result)
    inputs = np.array([7, -7, -(2**31), 5], np.int32), np.array([2, 2, -1, 3], np.int32)
    found = [fusion.compile(builder.get(), backends=[name], cache=False)(*inputs) for name in ("tvm", "cpu")]
    for theirs, ours in zip(*found, strict=True):
        np.testing.assert_array_equal(theirs, ours)


def test_calls_of_kernels_stay_where_those_are() -> None:
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    kernel = tvm.ir.GlobalVar("kernel")
    call = relax.call_tir(kernel, relax.Tuple([x]), out_ty=relax.TensorType((4,), "float32"))
    assert "no form" in registry.library("tvm").why_not_taken(call)
