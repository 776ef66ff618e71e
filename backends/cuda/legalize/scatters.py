"""Writes at positions that are data.

    for element: out[element] = data[element]                        a launch
    for line: for k in its updates: out[..., indices[k], ...] = reduce(out[...], updates[k])      the next

Where lines are too few to keep a device busy, an update is a thread, and the first of a place takes all of its updates:

    for update u: if none before it has its place:
        for k from u on: if it has that place: out[place] = reduce(out[place], updates[k])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from tvm import relax, te, tirx

from backends.cuda.kernels.device_arithmetic import pass_nan
from backends.cuda.legalize.threads import FEW_LINES, Expr, Threads, split
from backends.tensorir.emit import Nest, int64
from backends.tensorir.legalize.common import FLegalize, is_float, wide
from backends.tensorir.legalize.scatters import REDUCTIONS

_PAIRS = 1 << 19
"""Updates that compare their places with all others in as long as one thread
takes to write them one after another: some 6 instructions a comparison, of which an A100 has 6,912 lanes, for some 700
cycles of an update that waits for memory."""


def _scatter_elements(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """A thread has the updates of one line, in their order, so that the later of two that meet stays."""
    axis, reduction = int(call.attrs.axis), str(call.attrs.reduction)

    def write(nest: Threads, out: tirx.Buffer, indices: tirx.Buffer, updates: tirx.Buffer) -> None:
        shape = [int(extent) for extent in indices.shape]
        along = axis % len(shape)
        others = [extent for at, extent in enumerate(shape) if at != along]
        with nest.threads(others) as line, nest.loop("k", shape[along]) as k:
            place = [*line[:along], k, *line[along:]]
            target = list(place)
            target[along] = tirx.BufferLoad(indices, place).astype("int64")
            _put(nest, out, target, update=tirx.BufferLoad(updates, place), reduction=reduction)

    return _scattered(builder, call, write, name="scatter_elements")


def _scatter_nd(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """A thread has an element of what each update is, and takes the updates in their order; or one of one update."""
    reduction = str(call.attrs.reduction)

    def write(nest: Threads, out: tirx.Buffer, indices: tirx.Buffer, updates: tirx.Buffer) -> None:
        *tuples, width = (int(extent) for extent in indices.shape)
        inner = [int(extent) for extent in out.shape][width:]
        count, lines = prod(tuples), prod(inner)

        def target(at: Expr) -> list[Expr]:
            place = split(at, tuples)
            return [tirx.BufferLoad(indices, [*place, int64(column)]).astype("int64") for column in range(width)]

        def update(at: Expr, element: list[Expr]) -> Expr:
            return tirx.BufferLoad(updates, [*split(at, tuples), *element])

        if lines < FEW_LINES and count * lines <= _PAIRS:
            with nest.threads([count, *inner]) as (own, *element):
                _put_all(nest, out, count, own, element, target=target, update=update, reduction=reduction)
        else:
            with nest.threads(inner) as element, nest.loop("tuple", count) as at:
                _put(nest, out, [*target(at), *element], update=update(at, element), reduction=reduction)

    return _scattered(builder, call, write, name="scatter_nd")


def _put_all(
    nest: Threads, out: tirx.Buffer, count: int, own: Expr, element: list[Expr], *,
    target: Callable[[Expr], list[Expr]], update: Callable[[Expr, list[Expr]], Expr], reduction: str,
) -> None:  # fmt: skip
    """Write all updates of the place of one of `count`, in their order, if it is the first of them."""

    def meets(other: Expr) -> Expr:
        return tirx.all(*(left.equal(right) for left, right in zip(target(other), target(own), strict=True)))

    before = nest.variable("before", tirx.const(0, "int32"))
    with nest.loop("k", own) as k:
        before.set(before.value + meets(k).astype("int32"))
    with nest.when(before.value.equal(tirx.const(0, "int32"))):
        place = [*target(own), *element]
        total = nest.variable("total", _wide(tirx.BufferLoad(out, place), reduction))
        with nest.loop("k", int64(count) - own) as k, nest.when(meets(own + k)):
            total.set(_reduced(total.value, _wide(update(own + k, element), reduction), reduction))
        nest.store(out, place, total.value.astype(str(out.dtype)))


def _scattered(
    builder: relax.BlockBuilder,
    call: relax.Call,
    write: Callable[[Threads, tirx.Buffer, tirx.Buffer, tirx.Buffer], None],
    name: str,
) -> relax.Expr:
    def scatter(data: te.Tensor, indices: te.Tensor, updates: te.Tensor) -> te.Tensor:
        def loops(operands: Sequence[tirx.Buffer], results: Sequence[tirx.Buffer]) -> tirx.Stmt:
            nest, (out,) = Threads(), results
            with nest.threads([int(extent) for extent in data.shape]) as place:
                nest.store(out, place, tirx.BufferLoad(operands[0], place))
            if 0 not in [int(extent) for extent in indices.shape]:
                write(nest, out, *operands[1:])
            return nest.finish()

        return te.extern([data.shape], [data, indices, updates], loops, name=name, dtype=str(data.dtype))

    return builder.call_te(scatter, *call.args, primfunc_name_hint=name)


def _put(nest: Nest, out: tirx.Buffer, place: list[Expr], update: Expr, reduction: str) -> None:
    before = _wide(tirx.BufferLoad(out, place), reduction)
    nest.store(out, place, _reduced(before, _wide(update, reduction), reduction).astype(str(out.dtype)))


def _wide(value: Expr, reduction: str) -> Expr:
    return value if reduction == "update" else wide(value)


def _reduced(before: Expr, update: Expr, reduction: str) -> Expr:
    value = REDUCTIONS[reduction](before, update)
    if reduction in ("max", "min") and is_float(before.ty.dtype):
        return pass_nan(type(value), before, update)
    return value


SCATTERS: dict[str, FLegalize] = {
    "relax.scatter_elements": _scatter_elements,
    "relax.scatter_nd": _scatter_nd,
}
