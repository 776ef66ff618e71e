"""Shapes that contradict each other are F204 with both shapes, whichever operator reads them, and values that an
operator does not take are F302 with the node and what to do."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
from tvm import relax
from tvm.relax import op

import fusion
from fusion.errors import ExecutionError, ShapeError
from tests.regressions.relax_models import module


def _parsed(body: str, inputs: str, output: str = "float[...] y") -> onnx.ModelProto:
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 18]> graph ({inputs}) => ({output.replace("[...]", "[A]")}) {{ {body} }}'
    )
    if "[...]" in output:
        model.graph.output[0].type.tensor_type.ClearField("shape")
    return model


@pytest.mark.parametrize(
    ("body", "inputs", "shapes"),
    [
        ("y = Add (a, b)", "float[2,3] a, float[2,4] b", ["[2, 3]", "[2, 4]"]),
        ("y = Max (a, b)", "float[2,3] a, float[4,3] b", ["[2, 3]", "[4, 3]"]),
        ("c = Greater (a, b)\n y = Where (c, a, b)", "float[3] a, float[0] b", ["[3]", "[0]"]),
        ("y = PRelu (a, b)", "float[2,3] a, float[4] b", ["[2, 3]", "[4]"]),
        ("y = Expand (a, b)", "float[2,3] a, int64[1,2,2] b", ["[2, 3]", "[1, 2, 2]"]),
        ("y = Conv (a, b)", "float[1,3,2,2] a, float[4,3,3,3] b", ["[1, 3, 2, 2]", "3x3"]),
        ("y = MaxPool <kernel_shape = [5, 5]> (a)", "float[1,3,2,2] a", ["[1, 3, 2, 2]", "5x5"]),
    ],
)
def test_the_shapes_are_named(body: str, inputs: str, shapes: list[str]) -> None:
    with pytest.raises(ShapeError) as caught:
        fusion.compile(_parsed(body, inputs), cache=False)
    error = caught.value
    assert all(shape in error.why for shape in shapes), str(error)
    assert error.hint
    assert error.where.split()[0] in body


def test_shapes_that_broadcast() -> None:
    body = "c = Greater (a, b)\n d = Where (c, a, b)\n y = Sum (d, a, b)"
    module = fusion.compile(_parsed(body, "float[2,1,3] a, float[4,1] b"), cache=False)
    a, b = np.ones((2, 1, 3), np.float32), np.full((4, 1), 2, np.float32)
    np.testing.assert_array_equal(module(a, b)[0], np.full((2, 4, 3), 5, np.float32))


_FAILING = {
    "a kernel": ("y = Gather (table, i)", "float[100] table, int64[1] i", {"i": 200}, "Gather 'y'", "index 200"),
    "a fallback": (
        "y, n = TopK (table, i)", "float[4] table, int64[1] i", {"i": 9}, "TopK 'y'", "9",
    ),
    "a reshape": (
        "y = Reshape (table, i)", "float[4] table, int64[1] i", {"i": 3}, "Reshape 'y'", "cannot be reshaped",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", _FAILING)
def test_values_that_an_operator_does_not_take(case: str) -> None:
    body, inputs, values, where, why = _FAILING[case]
    module = fusion.compile(_parsed(body, inputs), cache=False)
    feeds = {spec.name: np.ones([size or 1 for size in spec.shape or ()], spec.dtype) for spec in module.inputs}
    feeds |= {name: np.array([value]) for name, value in values.items()}
    with pytest.raises(ExecutionError) as caught:
        module.run(feeds)
    assert caught.value.where == where
    assert why in caught.value.why
    assert "inputs of other values" in caught.value.hint


def test_an_operator_without_a_name_has_its_operands() -> None:
    table = relax.const(np.ones((10, 4), np.float32))
    reads = module(lambda b, ids: op.exp(b.emit(op.take(table, ids, axis=0))), {"ids": ((3,), "int64")})
    compiled = fusion.compile(reads, cache=False)
    with pytest.raises(ExecutionError) as caught:
        compiled(np.full(3, 50))
    assert "take" in caught.value.where
    assert "float32[10, 4]" in caught.value.where
    assert "lv" not in caught.value.where


def test_an_operator_of_torch_has_its_module_and_line() -> None:
    class Rows(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(10, 4)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.table(ids)

    compiled = fusion.compile((Rows().eval(), (torch.zeros(1, 3, dtype=torch.long),)), cache=False)
    with pytest.raises(ExecutionError) as caught:
        compiled(np.full((1, 3), 50))
    assert caught.value.where.startswith("embedding 'embedding', module 'table', File ")

