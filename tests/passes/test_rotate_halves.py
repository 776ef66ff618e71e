"""Halves of rows that change places are read by one PrimFunc; other concatenations stay."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from tvm import relax

import fusion
from fusion import context, pipeline
from fusion.frontends import import_model
from fusion.passes.rotate_halves import RotateHalves
from tests.passes.modules import Build, apply, names, normal, unchanged


def part(b: relax.BlockBuilder, x: relax.Var, begin: int, end: int, axis: int = -1, step: int = 1) -> relax.Var:
    return b.emit(relax.op.strided_slice(x, [axis % 3], [begin], [end], [step]))


def turned(cut: int, negative: tuple[bool, bool]) -> Build:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        parts = [part(b, x, cut, 12), part(b, x, 0, cut)]
        signed = [b.emit(relax.op.negative(each)) if sign else each for each, sign in zip(parts, negative, strict=True)]
        return relax.op.add(b.emit(relax.op.concat(signed, axis=-1)), x)

    return build


@pytest.mark.parametrize("negative", [(True, False), (False, False), (False, True)])
@pytest.mark.parametrize("cut", [6, 4, 11])
def test_halves_that_change_places_are_one_function(cut: int, negative: tuple[bool, bool]) -> None:
    assert names(apply(RotateHalves(), turned(cut, negative), [normal(2, 3, 12)])) == ["call_tir", "add"]


def _joined(b: relax.BlockBuilder, *parts: relax.Expr) -> relax.Expr:
    return relax.op.concat(parts, axis=-1)


OTHERS: dict[str, Build] = {
    "in their order": lambda b, x: _joined(b, part(b, x, 0, 6), part(b, x, 6, 12)),
    "a gap": lambda b, x: _joined(b, part(b, x, 7, 12), part(b, x, 0, 5)),
    "an overlap": lambda b, x: _joined(b, part(b, x, 4, 12), part(b, x, 0, 6)),
    "every second": lambda b, x: _joined(b, part(b, x, 0, 12, step=2), part(b, x, 0, 6)),
    "three": lambda b, x: _joined(b, part(b, x, 8, 12), part(b, x, 4, 8), part(b, x, 0, 4)),
    "other sums": lambda b, x: _joined(b, part(b, x, 6, 12), part(b, b.emit(relax.op.add(x, x)), 0, 6)),
    "other rows": lambda b, x: relax.op.concat([part(b, x, 1, 3, axis=1), part(b, x, 0, 1, axis=1)], axis=1),
    "no parts": lambda b, x: _joined(b, x, x),
}  # fmt: skip


@pytest.mark.parametrize("build", OTHERS.values(), ids=list(OTHERS))
def test_other_concatenations_stay(build: Build) -> None:
    unchanged(RotateHalves(), build, [normal(2, 3, 12)])


def rotary(front: str, behind: str) -> onnx.ModelProto:
    """Return rotary embedding of what `front` makes of the input, and what comes `behind` it."""
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
    rotary (float[2,5,24] given, float[5,24] cos, float[5,24] sin) => (float[2,5,24] y)
    <int64[1] start = {{0}}, int64[1] middle = {{12}}, int64[1] end = {{24}}, int64[1] axis = {{2}}>
    {{
        x = {front}
        high = Slice(x, middle, end, axis)
        low = Slice(x, start, middle, axis)
        negative = Neg(high)
        turned = Concat<axis = -1>(negative, low)
        straight = Mul(x, cos)
        across = Mul(turned, sin)
        sum = Add(straight, across)
        y = {behind}
    }}""")
    onnx.checker.check_model(model)
    return model


@pytest.mark.parametrize("behind", ["Relu(sum)", "Softmax<axis = -1>(sum)"])
@pytest.mark.parametrize("front", ["Identity(given)", "Relu(given)", "Softmax<axis = -1>(given)"])
def test_rotary_embedding_between_others(front: str, behind: str) -> None:
    model = rotary(front, behind)
    given, cos, sin = normal(2, 5, 24), normal(5, 24, seed=1), normal(5, 24, seed=2)
    result = fusion.compile(model).run({"given": given, "cos": cos, "sin": sin})["y"]
    x = compute(front, given)
    sums = x * cos + np.concatenate([-x[..., 12:], x[..., :12]], -1) * sin
    np.testing.assert_allclose(result, compute(behind, sums), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("behind", ["Relu(sum)", "Softmax<axis = -1>(sum)"])
def test_rotary_embedding_is_one_kernel_with_what_is_behind_it(behind: str) -> None:
    model = import_model(rotary("Identity(given)", behind), strict=True)
    lowered = pipeline.lower(model, context.resolve("llvm", threads=2))
    assert [call.kind for call in lowered.graph.calls].count("kernel") == 1


def compute(node: str, x: np.ndarray) -> np.ndarray:
    """Return what a node of the test's models makes of x."""
    grown = np.exp(x - x.max(-1, keepdims=True))
    return {"Relu": np.maximum(x, 0), "Identity": x}.get(node.partition("(")[0], grown / grown.sum(-1, keepdims=True))
