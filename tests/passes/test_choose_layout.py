"""Which of two layouts a graph gets whose products may read tensors as they lie: that whose kernels cost less."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from tvm import relax
from tvm.relax import op

import fusion
from fusion import context
from fusion.pipeline import lower_graph, lower_like
from tests.passes.modules import Build, module, normal, weight
from tests.targets import AVX2, runs_here

POINTS, TOKENS = (1, 3, 512, 1), (1, 96, 128)
TARGETS = ("llvm", *filter(runs_here, (AVX2,)))


def point_network(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    """Layers for each point of a cloud, as PointNet has them, the largest of each channel, and a layer for these."""
    for channels in (64, 128, 512):
        depth = int(x.ty.shape[1])
        x = b.emit(op.nn.relu(b.emit(op.nn.conv2d(x, weight(channels, depth, 1, 1)))))
    return b.emit(op.matmul(b.emit(op.max(x, axis=[2, 3])), weight(512, 10)))


def token_mixer(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    """A product along the tokens of each channel, which goes back to rows of channels."""
    columns = b.emit(op.permute_dims(x, [0, 2, 1]))
    made = b.emit(op.nn.relu(b.emit(op.matmul(columns, weight(96, 64)))))
    mixed = b.emit(op.matmul(made, weight(64, 96)))
    return b.emit(op.add(x, b.emit(op.permute_dims(mixed, [0, 2, 1]))))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("build", "shape", "lying"), [(point_network, POINTS, False), (token_mixer, TOKENS, True)])
def test_the_cheaper_layout_is_taken(build: Build, shape: tuple[int, ...], lying: bool, target: str) -> None:
    ctx, mod = context.resolve(target, threads=2), module(build, [normal(*shape)])
    graphs = lower_graph(mod, ctx)
    assert graphs.lying == {"": lying}
    assert lower_graph(mod, ctx, choose_layout=lambda first, second: first).lying == {"": True}
    assert lower_like(mod, ctx, graphs).lying == graphs.lying


def test_a_form_for_all_sizes_has_the_layout_of_usual_ones() -> None:
    """At the small sizes that passes see, moving tensors costs more than it saves."""
    weights = {f"w{place}": normal(*shape) for place, shape in enumerate(((64, 3), (128, 64), (512, 128)))}
    tensors = [numpy_helper.from_array(matrix[:, :, None, None] / 8, name) for name, matrix in weights.items()]
    nodes = []
    for place in range(3):
        nodes.append(helper.make_node("Conv", [f"x{place}", f"w{place}"], [f"c{place}"]))
        nodes.append(helper.make_node("Relu", [f"c{place}"], [f"x{place + 1}"]))
    nodes.append(helper.make_node("GlobalMaxPool", ["x3"], ["y"]))
    x = helper.make_tensor_value_info("x0", TensorProto.FLOAT, ["batch", 3, "points", 1])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 512, 1, 1])
    graph = helper.make_graph(nodes, "points", [x], [y], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    compiled = fusion.compile(model, threads=2, wait=True)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for batch, points in ((1, 17), (2, 300)):
        array = normal(batch, 3, points, 1)
        np.testing.assert_allclose(compiled(array)[0], session.run(None, {"x0": array})[0], rtol=1e-4, atol=1e-4)
    (form,) = compiled.specializations
    assert "matmul" in {kernel.template for kernel in form.kernels.values()}
    assert "batch_matmul" not in {kernel.template for kernel in form.kernels.values()}


@pytest.mark.parametrize("target", TARGETS)
def test_the_results_are_right(target: str) -> None:
    points = normal(*POINTS)
    compiled = fusion.compile(module(point_network, [points]), target, threads=2)
    expected = points[0, :, :, 0].T.astype(np.float64)
    for channels in (64, 128, 512):
        matrix = weight(channels, expected.shape[1], 1, 1).value.numpy()[:, :, 0, 0].astype(np.float64)
        expected = np.maximum(expected @ matrix.T, 0)
    expected = expected.max(0) @ weight(512, 10).value.numpy().astype(np.float64)
    np.testing.assert_allclose(compiled(points)[0][0], expected, rtol=1e-4, atol=1e-4)
