"""Writes at positions that are data.

    for element: out[element] = data[element]                        a launch
    for line: for k in its updates: out[..., indices[k], ...] = reduce(out[...], updates[k])      the next
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from tvm import relax, te, tirx

from backends.cuda.kernels.device_arithmetic import pass_nan
from backends.cuda.legalize.threads import Expr, Threads, split
from backends.tensorir.emit import Nest, int64
from backends.tensorir.legalize.common import NARROW, FLegalize, is_float
from backends.tensorir.legalize.scatters import REDUCTIONS


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
    """A thread has an element of what each update is, and takes the updates in their order."""
    reduction = str(call.attrs.reduction)

    def write(nest: Threads, out: tirx.Buffer, indices: tirx.Buffer, updates: tirx.Buffer) -> None:
        *tuples, width = (int(extent) for extent in indices.shape)
        inner = [int(extent) for extent in out.shape][width:]
        with nest.threads(inner) as element, nest.loop("tuple", prod(tuples)) as at:
            place = split(at, tuples)
            target = [tirx.BufferLoad(indices, [*place, int64(column)]).astype("int64") for column in range(width)]
            update = tirx.BufferLoad(updates, [*place, *element])
            _put(nest, out, [*target, *element], update=update, reduction=reduction)

    return _scattered(builder, call, write, name="scatter_nd")


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
    dtype = str(out.dtype)
    wide = "float32" if dtype in NARROW and reduction != "update" else dtype
    before, update = (each.astype(wide) for each in (tirx.BufferLoad(out, place), update))
    value = REDUCTIONS[reduction](before, update)
    if reduction in ("max", "min") and is_float(wide):
        value = pass_nan(type(value), before, update)
    nest.store(out, place, value.astype(dtype))


SCATTERS: dict[str, FLegalize] = {
    "relax.scatter_elements": _scatter_elements,
    "relax.scatter_nd": _scatter_nd,
}
