"""Lifting weights and planning memory: what they match, what they leave alone, and that the numbers stay."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from onnx import helper
from tvm import relax

import fusion
from fusion.module.program import KernelProgram
from fusion.passes.lift_weights import lift_weights, lift_weights_alike
from fusion.tensors import as_numpy
from tests.module import small_models
from tests.module.small_models import FLOAT


def chain(constants: list[np.ndarray]) -> tvm.IRModule:
    """Return x + c0 + c1 + ... with x[4, 4]."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 4), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            value = x
            for constant in constants:
                value = builder.emit(relax.op.add(value, relax.const(constant)))
            result = builder.emit_output(value)
        builder.emit_func_output(result)
    return builder.get()


def test_constants_become_parameters_in_order() -> None:
    constants = [np.full((4, 4), value, np.float32) for value in (1, 2, 3)]
    mod, weights = lift_weights(chain(constants))
    assert [param.name for param in mod["main"].params] == ["x", "w0", "w1", "w2"]
    for weight, constant in zip(weights, constants, strict=True):
        np.testing.assert_array_equal(as_numpy(weight), constant)


def test_equal_constants_share_a_parameter_and_others_do_not() -> None:
    long = np.zeros((4, 4, 1024), np.float32)
    late = long.copy()
    late[-1, -1, -1] = 1
    _, weights = lift_weights(chain([np.ones((4, 4), np.float32)] * 2 + [np.ones((4, 1), np.float32)]))
    assert len(weights) == 2
    builder_mod = chain([long[:, :, 0]])
    assert len(lift_weights(builder_mod)[1]) == 1
    # Arrays that differ only beyond the prefix that is compared first stay apart.
    big = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 4, 1024), "float32"))
    with big.function("main", [x]):
        with big.dataflow():
            result = big.emit_output(relax.op.add(relax.op.add(x, relax.const(long)), relax.const(late)))
        big.emit_func_output(result)
    assert len(lift_weights(big.get())[1]) == 2


def test_forms_share_parameters_where_constants_are_equal_in_all_of_them() -> None:
    """At one size a constant may be equal to another one, which it is not at others."""
    one, two, three = (np.full((4, 4), value, np.float32) for value in (1, 2, 3))
    constants = ([one, one, two, two], [one, two, three, three])
    lifted = lift_weights_alike(list(map(chain, constants)))
    for (mod, weights), given in zip(lifted, constants, strict=True):
        assert [param.name for param in mod["main"].params] == ["x", "w0", "w1", "w2"]
        for weight, constant in zip(weights, given[:3], strict=True):
            np.testing.assert_array_equal(as_numpy(weight), constant)
    assert [len(weights) for _, weights in lift_weights_alike([chain([one]), chain([one, two])])] == [1, 2]


def test_lifting_twice_is_lifting_once_and_leaves_its_input_alone() -> None:
    before = chain([np.ones((4, 4), np.float32)])
    text = before.script()
    once, weights = lift_weights(before)
    again, none = lift_weights(once)
    assert before.script() == text
    assert len(weights) == 1
    assert not none
    tvm.ir.assert_structural_equal(once, again)


def test_activations_are_planned_once_and_shared() -> None:
    """A chain of ten products needs two buffers of one size, whatever its length."""
    rng = np.random.default_rng(0)
    matrices = {f"m{i}": rng.standard_normal((16, 16)).astype(np.float32) / 4 for i in range(10)}
    nodes = [
        helper.make_node("MatMul", [f"h{i}" if i else "x", f"m{i}"], [f"h{i + 1}" if i < 9 else "y"]) for i in range(10)
    ]
    small = small_models.model(nodes, [("x", FLOAT, [8, 16])], [("y", FLOAT, [8, 16])], matrices)
    module = fusion.compile(small)
    program = module.specializations[0].program
    assert isinstance(program, KernelProgram)
    assert sum(program.plan.storages) <= 2 * 8 * 16 * 4
    x = rng.standard_normal((8, 16)).astype(np.float32)
    expected = x
    for matrix in matrices.values():
        expected = expected @ matrix
    np.testing.assert_allclose(module(x)[0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("count", [1, 2])
def test_models_without_kernels_run(count: int) -> None:
    nodes = [helper.make_node("Identity", ["x"], [f"y{i}"]) for i in range(count)]
    small = small_models.model(nodes, [("x", FLOAT, [4])], [(f"y{i}", FLOAT, [4]) for i in range(count)])
    x = np.arange(4, dtype=np.float32)
    outputs = fusion.compile(small)(x)
    assert len(outputs) == count
    outputs[0][:] = -1
    np.testing.assert_array_equal(x, np.arange(4, dtype=np.float32))
    for output in outputs[1:]:
        np.testing.assert_array_equal(output, x)
