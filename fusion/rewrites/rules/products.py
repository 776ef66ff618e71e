"""Scales of both operands of a product, as exporters write attentions: the root of the scale on each side."""

from __future__ import annotations

from tvm import relax
from tvm.relax import op

from fusion.rewrites.graph import Emit, Value
from fusion.rewrites.rule import Example, Rule, normal, scalar
from fusion.rewrites.rules.scales import Absorbed, absorb, operand_and_constant

_Moved = tuple[int, Value, Absorbed]
"""Which operand loses its scale, what it is without, and the other one with both."""


def _both_scaled(root: Value) -> _Moved | None:
    for place in (1, 0):
        part, other = root.args[place], root.args[1 - place]
        found = operand_and_constant(part) if part.op == "multiply" and part.reads == 1 else None
        if found is None or found[1].number is None:
            continue
        bare, weight = found
        scaled = absorb(other, weight.array.reshape((1,) * len(other.shape)))
        if scaled is not None:
            return place, bare, scaled
    return None


def _one_scaled(emit: Emit, root: Value, moved: _Moved) -> relax.Expr:
    place, bare, scaled = moved
    sides = {place: bare.expr, 1 - place: emit(scaled(emit))}
    return op.matmul(sides[0], sides[1])


def _example(b: relax.BlockBuilder, x: relax.Var, y: relax.Var, *, one: bool = True) -> relax.Expr:
    """Each side has `one` scale, or one for each of its last axis."""
    turned = b.emit(op.permute_dims(y, [0, 2, 1]))
    left, right = (scalar(0.3), scalar(0.5)) if one else (normal(8), normal(40))
    return op.matmul(b.emit(op.multiply(x, left)), b.emit(op.multiply(turned, right)))


SCALES_OF_BOTH = Rule(
    name="scales_of_both",
    form="(x * a) @ (y * b)  ->  (x * (a * b)) @ y",
    source="ONNX Runtime's MatMulScaleFusion",
    assumes="what overflows only before the scale, or only behind it, does not matter",
    roots=frozenset(("matmul",)),
    match=_both_scaled,
    build=_one_scaled,
    example=Example(_example, ((2, 3, 8), (2, 40, 8))),
    near_miss=Example(lambda b, x, y: _example(b, x, y, one=False), ((2, 3, 8), (2, 40, 8))),
)
