"""Writes at positions that are data, which are known to lie inside: `GuardOperands` has had them checked.

TVM's own count the positions of all axes by the shape of the data, and add negative positions as they are.

    for i in data                              parallel where there is much of it
      out[i] = data[i]
    for other axes of the indices              parallel, as no two of them meet; elements: another axis than theirs
      for k in the updates of one line         in order: of two updates of one place the later one stays
        out[..., indices[..., k, ...], ...] = reduce(out[...], updates[..., k, ...])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from tvm import relax, te, tirx
from tvm.tirx import ForKind

from backends.tensorir.emit import Nest
from backends.tensorir.legalize.common import FLegalize

Expr = Any  # a TensorIR expression
Reduce = Callable[[Expr, Expr], Expr]

REDUCTIONS: dict[str, Reduce] = {
    "update": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "mean": lambda old, new: (old + new) / tirx.const(2, new.ty.dtype),
    "min": lambda old, new: tirx.min(old, new),
    "max": lambda old, new: tirx.max(old, new),
}
_PARALLEL = 1 << 14
"""Elements whose copies take as long as starting threads."""


def _scatter_elements(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    axis, reduction = int(call.attrs.axis), str(call.attrs.reduction)

    def scatter_elements(data: te.Tensor, indices: te.Tensor, updates: te.Tensor) -> te.Tensor:
        shape = _extents(indices)
        along = axis % len(shape)

        def write(nest: Nest, read: _Reads, out: tirx.Buffer) -> None:
            others = [extent for at, extent in enumerate(shape) if at != along]
            with nest.loop("line", prod(others), _kind(prod(shape))) as line, nest.loop("k", shape[along]) as k:
                place = _split(line, others)
                place.insert(along, k)
                target = list(place)
                target[along] = read.indices(place)
                _put(nest, out, target, read.updates(place), reduction)

        return _extern("scatter_elements", write, data, indices, updates)

    return builder.call_te(scatter_elements, *call.args, primfunc_name_hint="scatter_elements")


def _scatter_nd(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    reduction = str(call.attrs.reduction)

    def scatter_nd(data: te.Tensor, indices: te.Tensor, updates: te.Tensor) -> te.Tensor:
        *tuples, width = _extents(indices)
        inner = _extents(data)[width:]

        def write(nest: Nest, read: _Reads, out: tirx.Buffer) -> None:
            with nest.loop("tuple", prod(tuples)) as at, nest.loop("element", prod(inner), _kind(prod(inner))) as i:
                place, rest = _split(at, tuples), _split(i, inner)
                target = [read.indices([*place, tirx.const(column, "int64")]) for column in range(width)]
                _put(nest, out, [*target, *rest], read.updates([*place, *rest]), reduction)

        return _extern("scatter_nd", write, data, indices, updates)

    return builder.call_te(scatter_nd, *call.args, primfunc_name_hint="scatter_nd")


class _Reads:
    """Loads of the operands of a scatter."""

    def __init__(self, indices: tirx.Buffer, updates: tirx.Buffer) -> None:
        self._indices, self._updates = indices, updates

    def indices(self, place: Sequence[Expr]) -> Expr:
        return tirx.BufferLoad(self._indices, list(place)).astype("int64")

    def updates(self, place: Sequence[Expr]) -> Expr:
        return tirx.BufferLoad(self._updates, list(place))


def _extern(
    name: str, write: Callable[[Nest, _Reads, tirx.Buffer], None], data: te.Tensor, indices: te.Tensor,
    updates: te.Tensor,
) -> te.Tensor:  # fmt: skip
    """Return a copy of `data` with what `write` puts into it."""
    shape = _extents(data)

    def loops(operands: Sequence[tirx.Buffer], results: Sequence[tirx.Buffer]) -> tirx.Stmt:
        nest, out = Nest(), results[0]
        with nest.loop("i", prod(shape), _kind(prod(shape))) as i:
            place = _split(i, shape)
            nest.store(out, place, tirx.BufferLoad(operands[0], place))
        if 0 not in _extents(indices):
            write(nest, _Reads(operands[1], operands[2]), out)
        return nest.finish()

    return te.extern([data.shape], [data, indices, updates], loops, name=name, dtype=str(data.dtype))


def _put(nest: Nest, out: tirx.Buffer, place: list[Expr], update: Expr, reduction: str) -> None:
    nest.store(out, place, REDUCTIONS[reduction](tirx.BufferLoad(out, place), update))


def _kind(elements: int) -> ForKind:
    return ForKind.PARALLEL if elements >= _PARALLEL else ForKind.SERIAL


def _extents(tensor: te.Tensor) -> list[int]:
    return [int(extent) for extent in tensor.shape]


def _split(position: Expr, shape: Sequence[int]) -> list[Expr]:
    """Return the indices of a position in row-major order; TVM joins them again when it makes the buffer flat."""
    indices: list[Expr] = []
    for extent in reversed(shape):
        size = tirx.const(max(extent, 1), "int64")  # a loop over none has a body too
        indices.append(tirx.floormod(position, size))
        position = tirx.floordiv(position, size)
    return indices[::-1]


SCATTERS: dict[str, FLegalize] = {
    "relax.scatter_elements": _scatter_elements,
    "relax.scatter_nd": _scatter_nd,
}
