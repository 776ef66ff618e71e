"""Attentions whose keys and values serve several heads each (grouped queries, as in Llama), which exporters repeat."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tvm import relax
from tvm.relax import op

from fusion.operators import OperatorKind, of_kind
from fusion.rewrites.graph import CONSTANT, Emit, Value
from fusion.rewrites.rule import Example, Rule, scalar

_VIEWS = of_kind(OperatorKind.RESHAPE)
_ELEMENTWISE = of_kind(OperatorKind.ELEMENTWISE)
_DEPTH = 8
"""Operators between the products that are looked through; scales, masks, a cap and a softmax are five."""


@dataclass(frozen=True)
class _Heads:
    """An attention `product(f(product(queries, keys)), values)` of repeated keys and values.

    Attributes:
        scores: The product of the queries, [*batch, heads, rows, depth], with the keys.
        keys, values: [*batch, groups, 1, ...] before they are repeated.
        turned: Whether the keys are transposed behind that.
        steps: What is between the products, in order, each with the places of the operands that come from the first.
    """

    scores: Value
    keys: Value
    values: Value
    turned: bool
    steps: Mapping[Value, list[int]]


def _narrow(value: Value) -> Value | None:
    """Return [*batch, groups, 1, ...] of which `value` has each group repeated as neighbouring heads; None where it is
    something else."""
    if value.op != "reshape" or value.data.op not in ("broadcast_to", "tile"):
        return None
    wide, narrow = value.data, value.data.data
    if not (value.is_known and wide.is_known and narrow.is_known) or len(value.shape) < 3:
        return None
    *batch, heads, a, b = value.shape
    if len(narrow.shape) != len(value.shape) + 1 or narrow.shape != (*batch, narrow.shape[-4], 1, a, b):
        return None
    groups = narrow.shape[-4]
    return narrow if wide.shape == (*batch, groups, heads // groups, a, b) else None


def _keys(value: Value) -> tuple[Value, bool] | None:
    """Return the keys before they were repeated, and whether they are transposed behind that."""
    if value.op != "permute_dims":
        found = _narrow(value)
        return None if found is None else (found, False)
    rank = len(value.shape)
    axes = [int(axis) % rank for axis in value.attrs.axes or ()]
    found = _narrow(value.data) if axes == [*range(rank - 2), rank - 1, rank - 2] else None
    return None if found is None else (found, True)


def _from_product(value: Value, steps: dict[Value, list[int]], depth: int = _DEPTH) -> Value | None:
    """Return the product of which `value` is made element by element or by a softmax of its rows, and add the steps;
    None where it is made of something else."""
    if value.op == "matmul":
        return value
    rank = len(value.shape)
    if value.op == "nn.softmax":
        places = [0] if int(value.attrs.axis) % rank == rank - 1 else []
    else:
        places = [at for at, arg in enumerate(value.args) if arg.op != CONSTANT and arg.shape == value.shape]
        places = places if value.op in _ELEMENTWISE else []
    found = {at: _from_product(value.args[at], steps, depth - 1) for at in places if depth}
    products = {product for product in found.values() if product is not None}
    if len(products) != 1:
        return None
    steps[value] = [at for at, product in found.items() if product is not None]
    return products.pop()


def _shared(root: Value) -> _Heads | None:
    """Return the attention whose last product `root` is."""
    values, rank = _narrow(root.weight), len(root.shape)
    steps: dict[Value, list[int]] = {}
    product = _from_product(root.data, steps) if values is not None else None
    if values is None or product is None:
        return None
    keys = _keys(product.weight)
    if keys is None or len(product.data.shape) != rank or keys[0].shape[:-2] != values.shape[:-2]:
        return None
    return _Heads(product, keys[0], values, keys[1], steps)


def _grouped(emit: Emit, root: Value, heads: _Heads) -> relax.Expr:
    *batch, groups, _, _, _ = heads.values.shape
    each, rows = root.shape[-3] // groups, root.shape[-2]
    middle = (groups,) if rows == 1 else (groups, each)

    def split(value: Value) -> relax.Expr:
        """Return an operand with the axis of heads in two, or heads of one row each as rows of a group."""
        if len(value.shape) < 3:
            return value.expr
        *lead, many, _, last = value.shape
        axes = (1,) * len(middle) if many == 1 else middle
        high = value.shape[-2] if rows > 1 else each if many > 1 else 1
        shape = (*lead, *axes, high, last)
        return value.expr if shape == value.shape else emit(op.reshape(value.expr, shape))

    def shared(value: Value) -> relax.Expr:
        shape = (*batch, groups, *value.shape[-2:])
        if rows > 1:
            return value.expr
        is_there = value.op in _VIEWS and value.data.shape == shape
        return value.data.expr if is_there else emit(op.reshape(value.expr, shape))

    keys = shared(heads.keys)
    if heads.turned:
        rank = len(batch) + len(middle) + 2
        keys = emit(op.permute_dims(keys, [*range(rank - 2), rank - 1, rank - 2]))
    made = {heads.scores: emit(op.matmul(split(heads.scores.data), keys))}
    for value, places in heads.steps.items():
        args = [made[arg] if at in places else split(arg) for at, arg in enumerate(value.args)]
        is_softmax, how = value.op == "nn.softmax", value.bound
        made[value] = emit(op.nn.softmax(*args, -1) if is_softmax else relax.Call(how.op, args, how.attrs, how.ty_args))
    return op.reshape(emit(op.matmul(made[root.data], shared(heads.values))), root.shape)


def _example(rows: int = 3, repeat: Callable[[relax.Expr], relax.Expr] | None = None) -> Callable[..., relax.Expr]:
    def build(b: relax.BlockBuilder, q: relax.Var, k: relax.Var, v: relax.Var, mask: relax.Var) -> relax.Expr:
        def repeated(x: relax.Expr) -> relax.Expr:
            wide = b.emit((repeat or (lambda each: op.broadcast_to(each, (2, 2, 3, 9, 8))))(x))
            return b.emit(op.reshape(wide, (2, 6, 9, 8)))

        keys = b.emit(op.permute_dims(repeated(k), [0, 1, 3, 2]))
        scores = b.emit(op.multiply(b.emit(op.matmul(q, keys)), scalar(0.3)))
        weights = b.emit(op.nn.softmax(b.emit(op.add(scores, mask)), -1))
        return op.matmul(weights, repeated(v))

    return build


_SHAPES = ((2, 6, 3, 8), (2, 2, 1, 9, 8), (2, 2, 1, 9, 8), (2, 1, 3, 9))

SHARED_HEADS = Rule(
    name="shared_heads",
    form="attention(q, repeat(k), repeat(v))  ->  attention(groups of q, k, v)",
    source="Ainslie et al., GQA (EMNLP 2023): heads of a group are rows of one product",
    assumes="nothing; heads of one row each are the rows of their group",
    roots=frozenset(("matmul",)),
    match=_shared,
    build=_grouped,
    example=Example(_example(), _SHAPES),
    near_miss=Example(_example(repeat=lambda x: op.tile(x, (1, 3, 1, 1, 1))), _SHAPES),
)
