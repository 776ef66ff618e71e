"""What our kernels take, by the operators that libraries would be given."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import fusion
from fusion import context, pipeline
from fusion.bindings import call_name
from fusion.frontends import import_model
from fusion.module.plan import KernelCall
from fusion.module.program import KernelProgram
from fusion.placing import kernel_costs as costs_module
from tests.module.small_models import FLOAT, model


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_a_convolution_is_one_operator_of_all_its_kernels(axes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Libraries get it over its own axes, whatever kernels make of it; what it takes here is what all of these do."""
    shape = [1, 8, *[6] * axes]
    weights = np.random.default_rng(0).standard_normal((8, 8, *[3] * axes)).astype(np.float32)
    nodes = [helper.make_node("Conv", ["x", "w"], ["a"], pads=[1] * 2 * axes), helper.make_node("Relu", ["a"], ["y"])]
    proto = model(nodes, [("x", FLOAT, shape)], [("y", FLOAT, shape)], {"w": weights})
    (form,) = fusion.compile(proto, threads=1, cache=False).specializations
    found = pipeline.regions_of(import_model(proto, strict=True).mod, context.resolve(threads=1))
    assert [call_name(operator[0].value) for operator in found.operators] == [f"nn.conv{axes}d", "nn.relu"]

    def time_calls(program: KernelProgram, *_: object) -> tuple[list[KernelCall], list[float]]:
        calls = list(program.plan.calls)
        return calls, [1.0] * len(calls)

    monkeypatch.setattr(costs_module, "time_calls", time_calls)
    costs = costs_module.kernel_costs(found, form)
    assert sorted(each for cost in costs for each in cost.operators) == [0, 1]
    assert isinstance(form.program, KernelProgram)
    assert sum(cost.seconds for cost in costs) == len(form.program.plan.calls) >= axes


def test_what_a_rewrite_made_is_in_its_kernel() -> None:
    """A convolution whose weights take in a factor has another name than any operator of the model."""
    shape = [1, 8, 6, 6]
    random = np.random.default_rng(0).standard_normal
    constants = {
        name: random(extents).astype(np.float32)
        for name, extents in (("w", (8, 8, 1, 1)), ("b", (8,)), ("f", (8, 1, 1)))
    }
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["a"]),
        helper.make_node("Mul", ["a", "f"], ["c"]),
        helper.make_node("Add", ["c", "x"], ["d"]),
        helper.make_node("Relu", ["d"], ["y"]),
    ]
    proto = model(nodes, [("x", FLOAT, shape)], [("y", FLOAT, shape)], constants)
    (form,) = fusion.compile(proto, threads=1, cache=False).specializations
    found = pipeline.regions_of(import_model(proto, strict=True).mod, context.resolve(threads=1))
    assert [call_name(operator[0].value) for operator in found.operators] == ["nn.conv2d", "add", "add", "nn.relu"]
    assert found.graph.names[0] not in {operator.name for operator in form.graph().operators}
    (operators,) = (each for each in costs_module.calls_of(found, form).values() if 0 in each)
    assert operators == {0, 1, 2, 3}
