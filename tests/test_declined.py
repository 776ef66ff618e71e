"""Whoever declines says why: the reason is in `explain()`, with the operator and its value."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
import pytest
from onnx import TensorProto, helper
from tvm import relax, tirx
from tvm.relax import op

import fusion
from backends.cpu.kernels import fallback_loops, priority
from backends.cpu.kernels.template import Concerns, Lower, Template
from backends.cpu.layout_policy import CpuLayouts
from backends.cpu.lowerings import lowerings
from backends.tensorir.lower_anchors import LowerAnchors
from fusion.declined import Declined, Declines
from fusion.passes.layout import AssignLayouts
from fusion.passes.layout.factored_rules import FACTORED_RULES
from fusion.passes.layout.pointwise import POINTWISE
from fusion.passes.layout.rules import RULES
from tests.module.small_models import FLOAT, model
from tests.passes.modules import Build, module, normal, weight

INT32 = TensorProto.INT32
IMAGE, LAST = normal(1, 3, 8, 8), normal(1, 8, 8, 3)


def family(name: str, operator: str, reason: str, concerns: Concerns = lambda *call: True) -> Template[Any, Any]:
    """Return a family that takes no kernel and declines each call of `operator` that it concerns."""

    def write(builder: relax.BlockBuilder, call: relax.Call, lanes: int) -> NoReturn:
        raise Declined(reason)

    lowerings_of = {operator: Lower(write, concerns)}
    return replace(fallback_loops.TEMPLATE, name=name, claims=lambda marks: False, lowerings=lowerings_of)


def short(func: tirx.PrimFunc) -> NoReturn:
    raise Declined("it is short")


def test_explain_has_the_reasons_of_every_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_computed(builder: relax.BlockBuilder, call: relax.Call, lanes: int) -> bool:
        return isinstance(call.args[1], relax.Var)

    these = (
        family("own", "relax.nn.conv2d", "its kernel is not known", is_computed),
        replace(fallback_loops.TEMPLATE, name="long", read=short),
    )
    monkeypatch.setattr(priority, "TEMPLATES", (*these, *priority.TEMPLATES))
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["first"], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["first", "kernel"], ["dynamic"], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["first", "other"], ["again"], pads=[1, 1, 1, 1]),
        helper.make_node("CumSum", ["first", "axis"], ["sums"]),
        helper.make_node("Reshape", ["first", "shape"], ["mixed"]),
        helper.make_node("Add", ["v", "three"], ["plus"]),
        helper.make_node("Add", ["plus", "minus_three"], ["same"]),
        helper.make_node("Sin", ["same"], ["wave"]),
    ]
    inputs = [
        ("x", FLOAT, [1, 3, 14, 14]), ("kernel", FLOAT, [8, 8, 3, 3]), ("other", FLOAT, [8, 8, 3, 3]),
        ("v", FLOAT, [5]),
    ]  # fmt: skip
    square = [1, 8, 14, 14]
    outputs = [
        ("dynamic", FLOAT, square), ("again", FLOAT, square), ("sums", FLOAT, square),
        ("mixed", FLOAT, [1, 7, 224]), ("wave", FLOAT, [5]),
    ]  # fmt: skip
    numbers = {"three": np.float32(3), "minus_three": np.float32(-3)}
    values = {"w": normal(8, 3, 3, 3), "axis": np.array(2), "shape": np.array([1, 7, -1]), **numbers}
    explained = fusion.compile(model(nodes, inputs, outputs, values), threads=1).explain().splitlines()
    found = [line.strip() for line in explained]
    mixed = "an axis of its result would end inside of what lies together"
    for said in (
        "nn.conv2d of Conv 'dynamic', Conv 'again': not lowered to own: its kernel is not known",
        f"reshape of Reshape 'mixed': its operand moves: {mixed}",
        "add of Add 'same': not rewritten by shift_behind: the constants cancel: that may be meant to round",
    ):
        assert found.count(said) == 1, said
    assert any(line.startswith("cumsum: long declined: it is short") for line in found)
    assert any(line.endswith("cumsum is not analysed") for line in found)


def test_a_single_output_has_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(priority, "TEMPLATES", (family("own", "relax.matmul", "it is whole"), *priority.TEMPLATES))
    product = helper.make_node("MatMul", ["i", "i"], ["product"])
    explained = fusion.compile(model([product], [("i", INT32, [4, 4])], [("product", INT32, [4, 4])])).explain()
    assert "  matmul of MatMul 'product': not lowered to own: it is whole" in explained.splitlines()


def lowered(build: Build, array: np.ndarray) -> list[str]:
    return LowerAnchors(lowerings(16)).run(module(build, [array])).fact.declines.notes()


def last(b: relax.BlockBuilder, x: relax.Var, weights: relax.Expr, groups: int = 1) -> relax.Expr:
    return op.nn.conv2d(x, weights, groups=groups, data_layout="NHWC")


def dynamic(b: relax.BlockBuilder, *shape: int) -> relax.Expr:
    return b.emit(op.zeros(shape, "float32"))


def test_one_reason_of_several_families_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    these = (
        family("first", "relax.exp", "it is odd"),
        family("elsewhere", "relax.exp", "nobody asks it", lambda builder, call, lanes: False),
        family("second", "relax.exp", "it is even"),
        family("third", "relax.exp", "it is odd"),
        family("other", "relax.sin", "it is no wave"),
    )
    monkeypatch.setattr(priority, "TEMPLATES", these)
    said = [note.split(": ", 1)[1] for note in lowered(lambda b, x: op.exp(x), LAST)]
    assert said == ["not lowered to first, third: it is odd", "not lowered to second: it is even"]


def test_shapes_that_only_the_run_knows_are_declined(monkeypatch: pytest.MonkeyPatch) -> None:
    nobodys = family("own", "relax.matmul", "nobody asks it", lambda builder, call, lanes: False)
    monkeypatch.setattr(priority, "TEMPLATES", (nobodys,))
    x = relax.Var("x", relax.TensorType((tirx.Var("n", "int64"), 3), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            made = builder.emit_output(builder.normalize(op.matmul(x, weight(3, 2))))
        builder.emit_func_output(made)
    (note,) = LowerAnchors(lowerings(16)).run(builder.get()).fact.declines.notes()
    assert note.endswith(": not lowered to own: only the run knows a shape of it")


@pytest.mark.parametrize(
    "build",
    [
        lambda b, x: last(b, x, weight(4, 3, 1, 1)),
        lambda b, x: last(b, x, weight(3, 1, 3, 3), groups=3),
        lambda b, x: op.nn.avg_pool2d(x, (2, 2), layout="NHWC"),
        lambda b, x: op.matmul(x, weight(3, 2)),
        lambda b, x: op.exp(x),
    ],
)
def test_what_is_lowered_or_concerns_nobody_is_no_decline(build: Build) -> None:
    assert lowered(build, LAST) == []


def laid_out(build: Build, array: np.ndarray) -> list[str]:
    return AssignLayouts(CpuLayouts(16)).run(module(build, [array])).fact.declines.notes()


def turned(b: relax.BlockBuilder, x: relax.Var) -> relax.Var:
    """Return `x` of 4 axes stored in another order, that of a convolution's result."""
    return b.emit(op.nn.conv2d(x, weight(6, 3, 3, 3), padding=1))


def in_parts(b: relax.BlockBuilder, x: relax.Var) -> relax.Var:
    """Return an image whose axes consist of factors that lie apart."""
    blocks = b.emit(op.reshape(turned(b, x), (1, 6, 4, 2, 4, 2)))
    return b.emit(op.reshape(b.emit(op.permute_dims(blocks, [0, 3, 5, 2, 4, 1])), (4, 16, 6)))


DOUBLES = relax.const(np.ones((4, 6, 1, 1)), "float64")
MOVES = "its operands move to row-major storage: "
APART = "its operand moves: "


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda b, x: op.nn.conv2d(b.emit(op.astype(turned(b, x), "bfloat16")),
                                   b.emit(op.astype(dynamic(b, 4, 6, 1, 1), "bfloat16")), out_dtype="float32"),
         MOVES + "its weights in bfloat16 are no constant"),
        (lambda b, x: op.nn.conv2d(b.emit(op.astype(turned(b, x), "float64")), DOUBLES),
         MOVES + "it computes in float64"),
        (lambda b, x: op.nn.avg_pool2d(turned(b, x), (2, 2), layout="NHWC"), MOVES + "its layout is NHWC"),
        (lambda b, x: op.cumsum(turned(b, x)), MOVES + "it runs over all elements in their order"),
        (lambda b, x: op.sum(turned(b, x)), MOVES + "it runs over all elements in their order"),
        (lambda b, x: op.take(turned(b, x), relax.const(np.zeros((2, 2), "int64")), axis=1),
         MOVES + "it does not take rows along one axis"),
        (lambda b, x: op.nn.layer_norm(turned(b, x), weight(6, 8), weight(6, 8), axes=[1, 2]),
         MOVES + "its weights have their axes in another order"),
        (lambda b, x: op.reshape(turned(b, x), (1, 16, 24)),
         APART + "an axis of its result would end inside of what lies together"),
        (lambda b, x: op.permute_dims(b.emit(op.multiply(in_parts(b, x), dynamic(b, 4, 16, 6))), [0, 2, 1]),
         APART + "its operands lie in other parts"),
    ],
)  # fmt: skip
def test_layout_rules_say_why(build: Build, said: str) -> None:
    assert said in [note.split(": ", 1)[1] for note in laid_out(build, IMAGE)]


def test_where_nothing_moves_nothing_is_declined() -> None:
    assert laid_out(lambda b, x: op.sum(x), IMAGE) == []
    assert laid_out(lambda b, x: op.exp(turned(b, x)), IMAGE) == []
    assert laid_out(lambda b, x: op.exp(in_parts(b, x)), IMAGE) == []  # the kernel before takes the move along


def test_products_say_which_other_form_is_better() -> None:
    (note,) = laid_out(lambda b, x: op.nn.conv2d(x, weight(256, 256, 1, 1)), normal(1, 256, 1, 17))
    assert note.endswith(
        "not computed as a product with the image as it lies: storing the image channels-last costs less"
    )
    columns = (
        "not computed as a product with its columns as they lie: bringing the numbers of its rows together costs less"
    )
    notes = laid_out(lambda b, x: op.matmul(b.emit(op.permute_dims(x, [0, 2, 1])), weight(3, 500)), normal(64, 3, 9))
    assert any(note.endswith(columns) for note in notes)


def test_many_values_are_counted() -> None:
    declines = Declines()
    for index in range(7):
        declines.add("relax.add", f"v{index % 6}", "not done", "it cannot be")
    assert declines.notes({"v0": "Add 'first'"}) == [
        "add of Add 'first', 'v1', 'v2', 'v3' and 2 more: not done: it cannot be"
    ]


ANSWERS: list[Callable[..., Any]] = [
    *(lower.write for template in priority.TEMPLATES for lower in template.lowerings.values()),
    *(rule.build for rule in POINTWISE.values()),
    *RULES.values(),
    *(rule.run for rule in FACTORED_RULES.values()),
]


@pytest.mark.parametrize("function", dict.fromkeys(ANSWERS), ids=lambda function: function.__qualname__)
def test_nobody_declines_without_a_reason(function: Callable[..., Any]) -> None:
    """TVM's types are any to the type checker, which would take a None for one."""
    assert "None" not in str(inspect.signature(function).return_annotation)
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    for node in ast.walk(tree):
        assert not (isinstance(node, ast.Return) and node.value is None)
        assert not (isinstance(node, ast.Return) and _may_be_none(node.value))
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            assert node.exc.args, f"{Declined.__name__} has no reason"


def _may_be_none(value: ast.expr | None) -> bool:
    if isinstance(value, ast.IfExp):
        return _may_be_none(value.body) or _may_be_none(value.orelse)
    return isinstance(value, ast.Constant) and value.value is None
