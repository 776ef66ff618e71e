"""Lowers einsum to batched matmuls, which have templates."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import tvm
from tvm import relax

from fusion.bindings import call_name, data_of
from fusion.passes.rebuild import rebuild_main
from fusion.shapes import static_shape


@dataclass(frozen=True)
class LowerEinsum:
    """`einsum("bik,bjk->bij", x, y)`  ->  `matmul(x, permute_dims(y))`; several axes of one role are merged.

    Einsums stay as they are if they do not have two operands, repeat a name in an operand, sum a name of one operand
    only, have an ellipsis, or broadcast.
    """

    name: str = "lower_einsum"

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        return rebuild_main(mod, _lower, only=("einsum",))


def _lower(builder: relax.BlockBuilder, var: relax.Var, value: relax.Expr) -> relax.Expr:
    product = _read(value) if call_name(value) == "einsum" else None
    return value if product is None else product.build(builder)


@dataclass(frozen=True)
class _Product:
    """Two operands, the names of their axes and of those of the result, each name one letter."""

    operands: tuple[relax.Expr, relax.Expr]
    left: str
    right: str
    result: str

    def build(self, builder: relax.BlockBuilder) -> relax.Expr:
        """Return [batch, rows, summed] times [batch, summed, columns], brought into the order of the result."""
        batch = [name for name in self.left if name in self.right and name in self.result]
        summed = [name for name in self.left if name in self.right and name not in self.result]
        rows = [name for name in self.left if name not in self.right]
        columns = [name for name in self.right if name not in self.left]
        sizes = self.sizes

        def matrix(operand: relax.Expr, names: str, first: list[str], second: list[str]) -> relax.Expr:
            moved = _permuted(builder, operand, names, [*batch, *first, *second])
            shape = *(sizes[name] for name in batch), *(prod(sizes[name] for name in part) for part in (first, second))
            return _reshaped(builder, moved, shape)

        left, right = self.operands
        made = builder.emit(
            relax.op.matmul(matrix(left, self.left, rows, summed), matrix(right, self.right, summed, columns))
        )
        names = [*batch, *rows, *columns]
        parts = _reshaped(builder, made, tuple(sizes[name] for name in names))
        return _permuted(builder, parts, "".join(names), list(self.result))

    @property
    def sizes(self) -> Mapping[str, int]:
        pairs = zip((self.left, self.right), map(static_shape, self.operands), strict=True)
        return {name: size for names, shape in pairs for name, size in zip(names, shape, strict=True)}


def _read(call: relax.Call) -> _Product | None:
    """Return the product that `call` is; None where it is none."""
    operands = data_of(call)
    fields: Sequence[relax.Expr] = operands.fields if isinstance(operands, relax.Tuple) else ()
    found = re.fullmatch(r"([a-zA-Z]*),([a-zA-Z]*)->([a-zA-Z]*)", str(call.attrs.subscripts).replace(" ", ""))
    if found is None or len(fields) != 2 or not all(map(_is_float, fields)):
        return None
    left, right, result = found.groups()
    distinct = all(len(set(names)) == len(names) for names in (left, right, result))
    summed = set(left + right) - set(result)
    if not distinct or not summed or not summed <= set(left) & set(right):
        return None
    product = _Product((fields[0], fields[1]), left, right, result)
    same = all(product.sizes[name] == size for name, size in zip(left, static_shape(fields[0]), strict=True))
    return product if same else None


def _is_float(expr: relax.Expr) -> bool:
    return str(expr.ty.dtype.dtype) in ("float32", "float64")


def _permuted(builder: relax.BlockBuilder, expr: relax.Expr, names: str, wanted: list[str]) -> relax.Expr:
    order = [names.index(name) for name in wanted]
    return expr if order == sorted(order) else builder.emit(relax.op.permute_dims(expr, order))


def _reshaped(builder: relax.BlockBuilder, expr: relax.Expr, shape: tuple[int, ...]) -> relax.Expr:
    return expr if static_shape(expr) == shape else builder.emit(relax.op.reshape(expr, shape))
