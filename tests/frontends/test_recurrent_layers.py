"""RNN, GRU and LSTM of ONNX end in one kernel a layer, and are as right as ONNX Runtime's."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import fusion
from bench import gate
from bench.reference.evaluate import evaluate
from fusion.frontends import import_model
from tests.frontends.models import make, node

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def layer(
    op: str, steps: int, batch: int, size: int, hidden: int, direction: str = "forward", bias: bool = True,
    initial: bool = False, peepholes: bool = False, constant: bool = True, **attributes: object,
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:  # fmt: skip
    """Return a model of one node, and inputs for it."""
    random = np.random.default_rng([steps, batch, size, hidden])
    directions, width = 1 + (direction == "bidirectional"), GATES[op] * hidden
    batch_first = bool(attributes.get("layout"))
    state = (batch, directions, hidden) if batch_first else (directions, batch, hidden)
    shapes = {"w": (directions, width, size), "r": (directions, width, hidden)}
    shapes |= {"b": (directions, 2 * width)} if bias else {}
    shapes |= {"p": (directions, 3 * hidden)} if peepholes else {}
    weights = {name: _random(random, shape) / np.sqrt(np.float32(hidden)) for name, shape in shapes.items()}
    feeds = {"x": _random(random, (batch, steps, size) if batch_first else (steps, batch, size))}
    states = ("h", "c") if op == "LSTM" else ("h",)
    feeds |= {name: _random(random, state) for name in states if initial}
    given = ["x", "w", "r", "b", "", *states, "p"]
    names = [name if name in feeds or name in weights else "" for name in given]
    while not names[-1]:
        names.pop()
    if not constant:
        feeds, weights = feeds | weights, {}
    outputs = ["y", "y_h", "y_c"][: 1 + len(states)]
    made = node(op, names, outputs, hidden_size=hidden, direction=direction, **attributes)
    return make([made], {name: feed.shape for name, feed in feeds.items()}, outputs, weights, opset=17), feeds


def _random(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return random.standard_normal(shape, dtype=np.float32)


def judge(model: onnx.ModelProto, feeds: dict[str, np.ndarray], folder: Path) -> fusion.CompiledModule:
    """Compile the model without a fallback, hold its outputs to the float64 gate, and return it."""
    path = folder / "model.onnx"
    onnx.save(model, path)
    compiled = fusion.compile(path, threads=2, strict=True)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    baseline = dict(zip(names, session.run(names, feeds), strict=True))
    found = compiled(*feeds.values())
    outputs = dict(zip(names, found, strict=True))
    verdict = gate.Verdict()
    gate.judge(verdict, outputs, baseline, evaluate(path, feeds))
    assert verdict.passed, verdict.reasons
    return compiled


DIRECTIONS = ("forward", "reverse", "bidirectional")
KINDS: tuple[tuple[str, dict[str, object]], ...] = (
    ("RNN", {}),
    ("GRU", {"linear_before_reset": 0}),
    ("GRU", {"linear_before_reset": 1}),
    ("LSTM", {}),
    ("LSTM", {"peepholes": True}),
)
GIVEN: tuple[dict[str, bool], ...] = ({"initial": True}, {"bias": False}, {"constant": False, "initial": True})


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("kind", range(len(KINDS)))
def test_layers(kind: int, direction: str, tmp_path: Path) -> None:
    """Each kind in each direction, and what is given in turn: with each kind, and in each direction, all of it is."""
    op, options = KINDS[kind]
    case = (kind + DIRECTIONS.index(direction)) % len(GIVEN)
    model, feeds = layer(op, 7 - case, 1 + case, 11, 19 + case, direction, **GIVEN[case], **options)
    judge(model, feeds, tmp_path)


@pytest.mark.parametrize(("op", "count"), [("GRU", 2), ("LSTM", 3)])
def test_activations_of_each_direction(op: str, count: int, tmp_path: Path) -> None:
    """Of an RNN, the evaluator in float64 knows no others than Tanh."""
    names = ["Tanh", "Relu", "Sigmoid", "Sigmoid", "Tanh", "Tanh"][: 2 * count]
    model, feeds = layer(op, 5, 2, 6, 10, "bidirectional", activations=names)
    judge(model, feeds, tmp_path)


@pytest.mark.parametrize("op", GATES)
def test_batches_first(op: str) -> None:
    """ONNX Runtime has no such layout: what is compared is the other layout's."""
    model, feeds = layer(op, 5, 3, 6, 10, "bidirectional", initial=True, layout=1)
    swapped, _ = layer(op, 5, 3, 6, 10, "bidirectional", initial=True)
    found = fusion.compile(model, strict=True)(*feeds.values())
    turned = [np.ascontiguousarray(feed.swapaxes(0, 1)) for feed in feeds.values()]
    other = fusion.compile(swapped, strict=True)(*turned)
    np.testing.assert_allclose(found[0].transpose(1, 2, 0, 3), other[0], rtol=0, atol=1e-6)
    for state, expected in zip(found[1:], other[1:], strict=True):
        np.testing.assert_allclose(state.swapaxes(0, 1), expected, rtol=0, atol=1e-6)


def test_a_layer_is_two_kernels(tmp_path: Path) -> None:
    model, feeds = layer("LSTM", 6, 1, 32, 32, "bidirectional")
    compiled = judge(model, feeds, tmp_path)
    assert len(compiled.specializations[0].kernels) == 2


@pytest.mark.parametrize("op", ["GRU", "LSTM"])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_last_states_of_stacked_layers_are_joined(op: str, order: tuple[int, int], tmp_path: Path) -> None:
    """Each layer writes to memory of its own: its template knows no slices, and left one of those as it was."""
    path, hidden = tmp_path / "model.onnx", 128
    random, width = np.random.default_rng(3), GATES[op] * hidden
    states, nodes, weights, below = ("h", "c")[: 1 + (op == "LSTM")], [], {}, "x"
    for number, size in enumerate((16, hidden)):
        weights |= {f"w{number}": _random(random, (1, width, size)) / 16}
        weights |= {f"r{number}": _random(random, (1, width, hidden)) / 16}
        made = [f"y{number}", *(f"{state}{number}" for state in states)]
        nodes.append(node(op, [below, f"w{number}", f"r{number}"], made, hidden_size=hidden))
        nodes.append(node("Squeeze", [made[0], "axis"], [f"z{number}"]))
        below = f"z{number}"
    nodes += [node("Concat", [f"{state}{at}" for at in order], [state], axis=0) for state in states]
    weights["axis"] = np.array([1])
    onnx.save(make(nodes, {"x": ("steps", 1, 16)}, ["z1", *states], weights, opset=17), path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    of_any = fusion.compile(path, threads=2, wait=True)
    for steps in (1, 9):
        data = _random(random, (steps, 1, 16))
        fixed = fusion.compile(path, shapes={"x": data.shape}, threads=2, strict=True)
        for compiled in (fixed, of_any):
            for found, expected in zip(compiled(data), session.run(None, {"x": data}), strict=True):
                np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
        assert "fallback_loops" not in {kernel.template for kernel in fixed.specializations[0].kernels.values()}


def test_a_thousand_steps_take_no_longer_to_compile(tmp_path: Path) -> None:
    model, feeds = layer("LSTM", 1000, 1, 16, 24)
    started = time.process_time()
    fusion.compile(model, strict=True)
    assert time.process_time() - started < 3
    judge(model, feeds, tmp_path)


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"clip": 1.0}, "clipped or parametrized activations"),
        ({"activations": ["Sigmoid", "Softsign", "Tanh"]}, "activations Softsign"),
        ({"input_forget": 1}, "coupled input and forget gates"),
    ],
)
def test_what_is_left_to_the_fallback(attributes: dict[str, object], reason: str) -> None:
    model, _ = layer("LSTM", 3, 1, 4, 5, **attributes)
    (item,) = import_model(model).fallbacks
    assert item.reason == reason
