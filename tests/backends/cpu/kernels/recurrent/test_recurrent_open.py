"""RNN, GRU and LSTM of which only a call knows how many steps and sequences they have, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import fusion
from backends.cpu.kernels.recurrent import TEMPLATE
from backends.cpu.kernels.recurrent.open_plan import OpenRecurrentPlan
from backends.cpu.kernels.recurrent.read import read_recurrent
from backends.tensorir.symbols import bind
from fusion import context
from fusion.frontends.recurrence import RecurrenceSizes, recurrence_func
from fusion.symbolic.fit import Fit
from partition.recurrence import GATES, Recurrence
from tests.symbolic.unified import unified

STEPS, BATCH, WIDTH, HIDDEN = "steps", "batch", 6, 20
FORMS = {
    "rnn": ("RNN", {}), "gru": ("GRU", {}), "gru_after": ("GRU", {"linear_before_reset": 1}), "lstm": ("LSTM", {}),
}  # fmt: skip
SHAPES = ((7, 3), (1, 1), (1, 9), (4, 1), (30, 13), (2, 33))
PROBES = ({STEPS: 5, BATCH: 11}, {STEPS: 7, BATCH: 13})


def layers(kind: str, directions: int, attributes: dict[str, int]) -> onnx.ModelProto:
    """Return two layers, the first with an initial state of the caller, the second with peepholes if it is an LSTM; the
    sequences of those of two directions come batch first and have numbers of steps of their own."""
    random, gates = np.random.default_rng(len(kind)), GATES[kind]
    states = ["h", "c"] if kind == "LSTM" else ["h"]
    dims = [directions, BATCH, HIDDEN]
    state_inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name in states]
    if directions == 2:
        state_inputs.append(helper.make_tensor_value_info("lengths", TensorProto.INT32, [BATCH]))
    nodes, weights, outputs = [], [numpy_helper.from_array(np.array([0, 0, directions * HIDDEN]), "flat")], []
    source, outer = "x", [STEPS, BATCH]
    if directions == 2:
        source, outer = "steps_first", [BATCH, STEPS]
        nodes.append(helper.make_node("Transpose", ["x"], [source], perm=[1, 0, 2]))
    for layer, width in enumerate((WIDTH, directions * HIDDEN)):
        shapes = {"w": (gates * HIDDEN, width), "r": (gates * HIDDEN, HIDDEN), "b": (2 * gates * HIDDEN,)}
        if kind == "LSTM" and layer:
            shapes["p"] = (3 * HIDDEN,)
        for name, shape in shapes.items():
            value = (random.standard_normal((directions, *shape)) / np.sqrt(shape[-1])).astype(np.float32)
            weights.append(numpy_helper.from_array(value, f"{name}{layer}"))
        given = [source, f"w{layer}", f"r{layer}", f"b{layer}", "lengths" if directions == 2 else ""]
        given += ([""] * len(states) if layer else states) + ([f"p{layer}"] if "p" in shapes else [])
        last = [f"last_{name}{layer}" for name in states]
        direction = "bidirectional" if directions == 2 else "reverse"
        nodes += [
            helper.make_node(kind, given, [f"y{layer}", *last], hidden_size=HIDDEN, direction=direction, **attributes),
            helper.make_node("Transpose", [f"y{layer}"], [f"turned{layer}"], perm=[0, 2, 1, 3]),
            helper.make_node("Reshape", [f"turned{layer}", "flat"], [f"z{layer}"]),
        ]
        source, outputs = f"z{layer}", [*outputs, *last]
    graph = helper.make_graph(
        nodes, kind,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [*outer, WIDTH]), *state_inputs],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * 3) for name in (source, *outputs)],
        weights,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(
    ("form", "directions", "threads"),
    [(form, directions, 1 + (place + directions) % 2) for place, form in enumerate(FORMS) for directions in (1, 2)],
)  # all pairs of two
def test_one_form_for_all_steps_and_sequences(form: str, directions: int, threads: int) -> None:
    kind, attributes = FORMS[form]
    model = layers(kind, directions, attributes)
    compiled = fusion.compile(model, wait=True, hot_shapes=0, threads=threads)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    random = np.random.default_rng(0)
    for steps, batch in SHAPES:
        sizes = {STEPS: steps, BATCH: batch}
        feeds = {
            each.name: random.standard_normal([sizes.get(dim, dim) for dim in each.shape]).astype(np.float32)
            for each in session.get_inputs()
        }
        if "lengths" in feeds:
            feeds["lengths"] = random.integers(0, steps + 1, batch).astype(np.int32)
        for value, expected in zip(compiled.run(feeds).values(), session.run(None, feeds), strict=True):
            np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-5)
    (form_of_all,) = compiled.specializations
    assert TEMPLATE.name in [kernel.template for kernel in form_of_all.kernels.values()]


def opened(kind: str, directions: int, hidden: int, constant: bool) -> OpenRecurrentPlan:
    activations = (("Sigmoid", "Tanh", "Tanh")[: {"RNN": 1, "GRU": 2, "LSTM": 3}[kind]],) * directions
    recurrence = Recurrence(kind, (False, True)[:directions], activations, constant=constant)
    sizes = [RecurrenceSizes(probe[STEPS], probe[BATCH], hidden) for probe in PROBES]
    func = unified([recurrence_func(recurrence, each, "float32") for each in sizes], Fit(PROBES))
    assert bind(func, PROBES[0]).params
    return OpenRecurrentPlan.of(read_recurrent(func), context.resolve("llvm").compiler.machine, 2)


def test_threads_share_units_only_where_a_direction_leaves_l2() -> None:
    assert opened("LSTM", 1, 64, constant=True).shares_units == {False}
    assert True in opened("LSTM", 1, 1024, constant=True).shares_units


def test_a_short_sequence_is_one_task() -> None:
    assert opened("RNN", 1, 20, constant=True).is_one_task == {True, False}
    assert opened("RNN", 2, 20, constant=True).is_one_task == {False}
