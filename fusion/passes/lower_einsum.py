"""Lowers einsum to batched matmuls, which have templates."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod

import tvm
from tvm import relax
from tvm.ir import Constant

from fusion.bindings import call_name, data_of
from fusion.passes.rebuild import rebuild_main
from fusion.shapes import static_shape


@dataclass(frozen=True)
class LowerEinsum:
    """`einsum("bik,bjk->bij", x, y)`  ->  `matmul(x, permute_dims(y))`; several axes of one role are merged.

    Of more than two operands, two are contracted at a time, the pair of fewest products first (the greedy path of
    numpy.einsum_path): the sum over all names at once takes as many products as all their sizes together make. What
    only one operand has of names that are summed is summed before, and a step that sums nothing is a multiplication.

    Einsums stay as they are if they have one operand, repeat a name in an operand, have an ellipsis, broadcast, or are
    of other dtypes than float32 and float64.
    """

    name: str = "lower_einsum"

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        return rebuild_main(mod, _lower, only=("einsum",))


@dataclass(frozen=True, eq=False)
class _Operand:
    """A tensor and the names of its axes, one letter each. One that is given twice is two operands."""

    tensor: relax.Expr
    names: str

    @property
    def sizes(self) -> Mapping[str, int]:
        return dict(zip(self.names, static_shape(self.tensor), strict=True))

    def permuted(self, builder: relax.BlockBuilder, names: Sequence[str]) -> relax.Expr:
        """Return the tensor with its axes in the order of `names`."""
        order = [self.names.index(name) for name in names]
        return self.tensor if order == sorted(order) else builder.emit(relax.op.permute_dims(self.tensor, order))


def _lower(builder: relax.BlockBuilder, var: relax.Var, value: relax.Expr) -> relax.Expr:
    read = _read(value) if call_name(value) == "einsum" else None
    if read is None:
        return value
    operands, result = read
    while len(operands) > 1:
        pair = min(combinations(operands, 2), key=_products)
        operands = [operand for operand in operands if operand not in pair]
        kept = {*result, *(name for operand in operands for name in operand.names)}
        left, right = (_summed(builder, one, {*other.names, *kept}) for one, other in (pair, pair[::-1]))
        operands.append(_contract(builder, left, right, result if not operands else None, kept))
    return _summed(builder, operands[0], set(result)).permuted(builder, result)


def _read(call: relax.Call) -> tuple[list[_Operand], str] | None:
    """Return the operands of `call` and the names of its result; None where it stays as it is."""
    data = data_of(call)
    fields: Sequence[relax.Expr] = data.fields if isinstance(data, relax.Tuple) else ()
    found = re.fullmatch(r"([a-zA-Z,]*)->([a-zA-Z]*)", str(call.attrs.subscripts).replace(" ", ""))
    if found is None or len(fields) < 2 or not all(map(_is_float, fields)):
        return None
    terms, result = found[1].split(","), found[2]
    if any(len(set(names)) != len(names) for names in (*terms, result)):
        return None
    operands = [_Operand(field, names) for field, names in zip(fields, terms, strict=True)]
    sizes = {item for operand in operands for item in operand.sizes.items()}
    return None if len(sizes) > len(dict(sizes)) else (operands, result)


def _products(pair: tuple[_Operand, _Operand]) -> int:
    left, right = pair
    return prod({**left.sizes, **right.sizes}.values())


def _summed(builder: relax.BlockBuilder, operand: _Operand, wanted: Iterable[str]) -> _Operand:
    """Return `operand` without the axes that nothing else wants, summed."""
    axes = [axis for axis, name in enumerate(operand.names) if name not in wanted]
    if not axes:
        return operand
    names = "".join(name for name in operand.names if name in wanted)
    return _Operand(builder.emit(relax.op.sum(operand.tensor, axes)), names)


def _contract(
    builder: relax.BlockBuilder, left: _Operand, right: _Operand, result: str | None, kept: set[str]
) -> _Operand:
    """Return the sum of the products over the names that are not kept, its axes in the order of `result` or, if that is
    None, in the order in which they are made."""
    shared = [name for name in left.names if name in right.names]
    if kept.issuperset(shared):
        return _multiply(builder, left, right, result)
    batch, summed = (tuple(name for name in shared if (name in kept) == keep) for keep in (True, False))
    products = (_Product(*pair, batch, summed) for pair in ((left, right), (right, left)))
    return min(products, key=lambda product: product.moved(result)).build(builder, result)


@dataclass(frozen=True)
class _Product:
    """[batch, rows, summed] times [batch, summed, columns]: rows are the other axes of the left operand, columns those
    of the right one."""

    left: _Operand
    right: _Operand
    batch: tuple[str, ...]
    summed: tuple[str, ...]

    def build(self, builder: relax.BlockBuilder, result: str | None) -> _Operand:
        """Return the product with its axes in the order of `result`; of [*batch, *rows, *columns] if that is None."""
        sizes = {**self.left.sizes, **self.right.sizes}

        def matrix(operand: _Operand, first: tuple[str, ...], second: tuple[str, ...]) -> relax.Expr:
            moved = operand.permuted(builder, [*self.batch, *first, *second])
            batch = (sizes[name] for name in self.batch)
            parts = (prod(sizes[name] for name in part) for part in (first, second))
            return _reshaped(builder, moved, (*batch, *parts))

        rows, columns = matrix(self.left, self.rows, self.summed), matrix(self.right, self.summed, self.columns)
        made = builder.emit(relax.op.matmul(rows, columns))
        names = "".join([*self.batch, *self.rows, *self.columns])
        product = _Operand(_reshaped(builder, made, tuple(sizes[name] for name in names)), names)
        return product if result is None else _Operand(product.permuted(builder, result), result)

    @property
    def rows(self) -> tuple[str, ...]:
        return self._others(self.left)

    @property
    def columns(self) -> tuple[str, ...]:
        return self._others(self.right)

    def moved(self, result: str | None) -> tuple[bool, int]:
        """Return whether the weights would be the left operand, where they cannot be packed, and how many elements are
        permuted for the product and for its result."""
        is_constant = [isinstance(operand.tensor, Constant) for operand in (self.left, self.right)]
        sizes = {**self.left.sizes, **self.right.sizes}
        orders = [
            (self.left.names, [*self.batch, *self.rows, *self.summed]),
            (self.right.names, [*self.batch, *self.summed, *self.columns]),
        ]
        if result is not None:
            orders.append((result, [*self.batch, *self.rows, *self.columns]))
        moved = [prod(sizes[name] for name in names) for names, order in orders if list(names) != order]
        return is_constant == [True, False], sum(moved)

    def _others(self, operand: _Operand) -> tuple[str, ...]:
        return tuple(name for name in operand.names if name not in (*self.batch, *self.summed))


def _multiply(builder: relax.BlockBuilder, left: _Operand, right: _Operand, result: str | None) -> _Operand:
    """Return the products of all elements, whose axes are in the order of `result` or, if that is None, in that of the
    operand with more axes."""
    more, fewer = (left, right) if len(left.names) >= len(right.names) else (right, left)
    names = result if result is not None else more.names + "".join(n for n in fewer.names if n not in more.names)

    def spread(operand: _Operand) -> relax.Expr:
        present = [name for name in names if name in operand.names]
        shape = tuple(operand.sizes.get(name, 1) for name in names)
        return _reshaped(builder, operand.permuted(builder, present), shape)

    return _Operand(builder.emit(relax.op.multiply(spread(left), spread(right))), names)


def _is_float(expr: relax.Expr) -> bool:
    return str(expr.ty.dtype.dtype) in ("float32", "float64")


def _reshaped(builder: relax.BlockBuilder, expr: relax.Expr, shape: tuple[int, ...]) -> relax.Expr:
    return expr if static_shape(expr) == shape else builder.emit(relax.op.reshape(expr, shape))
