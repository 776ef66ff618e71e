"""What a constant leaves as it is, and what is repeated along axes: masks of attentions as exporters write them."""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax import op

from fusion.operators import OperatorKind, of_kind
from fusion.rewrites.graph import CONSTANT, Emit, Value
from fusion.rewrites.rule import Example, Rule, scalar

_NEUTRAL = {"logical_and": True, "logical_or": False}


def _kept(root: Value) -> Value | None:
    """Return the operand that a constant leaves as it is."""
    for value, known in (root.args, reversed(root.args)):
        both = known.dtype == value.dtype == "bool"
        if both and known.op == CONSTANT and value.op != CONSTANT and np.all(known.array == _NEUTRAL[root.op]):
            return value
    return None


def _repeated(value: relax.Expr, shape: tuple[int, ...], target: tuple[int, ...]) -> relax.Expr:
    return value if shape == target else op.broadcast_to(value, target)


def _and_example(b: relax.BlockBuilder, x: relax.Var, first: bool = True) -> relax.Expr:
    known = np.ones((3, 1), "bool")
    known[0] = first
    both = b.emit(op.logical_and(relax.const(known), b.emit(op.less(x, scalar(0.5)))))
    return op.where(both, scalar(1), scalar(2))


ALL_OR_NONE = Rule(
    name="all_or_none",
    form="x and True, x or False  ->  x",
    source="LLVM's InstCombine",
    assumes="nothing",
    roots=frozenset(_NEUTRAL),
    match=_kept,
    build=lambda emit, root, value: _repeated(value.expr, value.shape, root.shape),
    example=Example(_and_example, ((1, 40),)),
    near_miss=Example(lambda b, x: _and_example(b, x, first=False), ((1, 40),)),
)


def _spread(root: Value) -> list[Value] | None:
    """Return the operands with what is repeated in the place of its repetitions; None where nothing is."""
    operands = [arg.data if arg.op == "broadcast_to" and arg.data.is_known else arg for arg in root.args]
    return None if operands == list(root.args) else operands


def _repeat_late(emit: Emit, root: Value, operands: list[Value]) -> relax.Expr:
    made = relax.Call(root.bound.op, [each.expr for each in operands], root.bound.attrs, root.bound.ty_args)
    shape = np.broadcast_shapes(*(each.shape for each in operands))
    return made if shape == root.shape else op.broadcast_to(emit(made), root.shape)


REPEAT_LATE = Rule(
    name="repeat_late",
    form="f(broadcast(x), y)  ->  broadcast(f(x, y))",
    source="XLA's broadcast sinking in its algebraic simplifier",
    assumes="f is elementwise; where y has all axes, the broadcast goes",
    roots=of_kind(OperatorKind.ELEMENTWISE),
    match=_spread,
    build=_repeat_late,
    example=Example(lambda b, x, y: op.add(b.emit(op.broadcast_to(x, (3, 40))), y), ((1, 40), (3, 40))),
    near_miss=Example(lambda b, x, y: op.add(b.emit(op.tile(x, (3, 1))), y), ((1, 40), (3, 40))),
)
