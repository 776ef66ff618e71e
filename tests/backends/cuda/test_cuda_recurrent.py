"""Recurrent layers of ONNX on the emulator: a product for the inputs of all steps, and one kernel for the steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import fusion
from tests.backends.cuda.emulator.emulate import WHY_NOT
from tests.backends.cuda.planned import run_planned

pytestmark = [pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT), pytest.mark.usefixtures("assembler")]

_STEPS, _BATCH, _WIDTH = 5, 3, 6
_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
LAYERS: dict[str, tuple[str, int, dict[str, Any], tuple[str, ...]]] = {
    "lstm": ("LSTM", 7, {}, ("bias",)),
    "lstm of many": ("LSTM", 40, {"direction": "bidirectional"}, ("bias",)),
    "lstm backward with peepholes": ("LSTM", 7, {"direction": "reverse"}, ("bias", "start", "peepholes")),
    "lstm of lengths": ("LSTM", 7, {"direction": "bidirectional"}, ("lengths",)),
    "gru": ("GRU", 7, {}, ("bias", "start")),
    "gru that resets behind": ("GRU", 7, {"linear_before_reset": 1, "direction": "bidirectional"}, ("bias",)),
    "rnn of two activations": ("RNN", 7, {"direction": "bidirectional", "activations": ["Relu", "Tanh"]}, ("lengths",)),
}  # fmt: skip


def layer(name: str) -> tuple[onnx.ModelProto, np.ndarray]:
    """Return a model of one layer, and its input."""
    kind, hidden, attributes, extras = LAYERS[name]
    random, directions = np.random.default_rng(len(name)), 2 if attributes.get("direction") == "bidirectional" else 1
    width, state = _GATES[kind] * hidden, (directions, _BATCH, hidden)
    shapes = {
        "w": (directions, width, _WIDTH), "r": (directions, width, hidden), "bias": (directions, 2 * width),
        "hidden": state, "cell": state, "peepholes": (directions, 3 * hidden),
    }  # fmt: skip
    held = {key: (random.standard_normal(shape) / 2).astype(np.float32) for key, shape in shapes.items()}
    held["lengths"] = np.array([5, 0, 2], np.int32)
    cells = ["cell"] if kind == "LSTM" else []
    asked = {"bias": "bias", "lengths": "lengths", "start": "hidden", "peepholes": "peepholes"}
    names = ["x", "w", "r", *(asked[each] if each in extras else "" for each in ("bias", "lengths", "start"))]
    names += [cell if "start" in extras else "" for cell in cells] + ["peepholes"] * ("peepholes" in extras)
    made = ["y", "y_h", *(["y_c"] if cells else [])]
    node = helper.make_node(kind, names, made, hidden_size=hidden, **attributes)
    x = random.standard_normal((_STEPS, _BATCH, _WIDTH)).astype(np.float32)
    graph = helper.make_graph(
        [node], name, [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info(each, onnx.TensorProto.FLOAT, None) for each in made],
        [numpy_helper.from_array(array, key) for key, array in held.items() if key in names],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), x


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_what_onnx_runtime_makes(name: str) -> None:
    """A sequence without steps too. Each direction has a product of its own, or both one."""
    model, x = layer(name)
    module = fusion.compile(model, target="cuda -arch=sm_80")
    (form,) = module.specializations
    assert sorted(kernel.template for kernel in form.kernels.values()).count("recurrent") == 1
    assert "product" in {kernel.template for kernel in form.kernels.values()}
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = session.run(None, {"x": x})
    for order in (0, 3):
        for found, expected in zip(run_planned(module, x, orders=(order,)), wanted, strict=True):
            np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=0, atol=2e-6)


def test_more_states_than_shared_memory_holds_are_refused() -> None:
    """Whoever has the weights: as constants they are 268 MB."""
    shapes = {"x": (1, 1, 2), "w": (1, 4 * 4096, 2), "r": (1, 4 * 4096, 4096)}
    given = [helper.make_tensor_value_info(key, onnx.TensorProto.FLOAT, shape) for key, shape in shapes.items()]
    node = helper.make_node("LSTM", ["x", "w", "r"], ["y"], name="large", hidden_size=4096)
    made = [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)]
    graph = helper.make_graph([node], "large", given, made)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(fusion.FusionError, match="4096 hidden units are more than shared memory holds") as raised:
        fusion.compile(model, target="cuda -arch=sm_80")
    assert "large" in raised.value.where
