"""The first elements along an axis in order, all of them for a sort."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tvm import relax, te, tirx

from backends.cuda.legalize.threads import Expr, Threads, WaitingLine
from backends.tensorir.legalize.common import FLegalize
from backends.tensorir.legalize.sort_rows import key_of
from fusion.bindings import data_of
from fusion.shapes import static_shape


def _topk(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    x, attrs = data_of(call), call.attrs
    count = int(attrs.k) if int(attrs.k) >= 1 else static_shape(x)[int(attrs.axis)]
    kinds = {"both": ("values", "indices")}.get(str(attrs.ret_type), (str(attrs.ret_type),))
    found = _first(builder, call, count, ascending=not attrs.largest, kinds={kind: str(attrs.dtype) for kind in kinds})
    return relax.Tuple(found) if len(found) == 2 else found[0]


def _sort(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    kind = {"values": ""} if call.op.name == "relax.sort" else {"indices": str(call.attrs.dtype)}
    count = static_shape(data_of(call))[int(call.attrs.axis)]
    return _first(builder, call, count, ascending=not call.attrs.descending, kinds=kind)[0]


def _first(
    builder: relax.BlockBuilder, call: relax.Call, count: int, ascending: bool, kinds: Mapping[str, str]
) -> list[relax.Expr]:
    """Return the first `count` elements along an axis in order, and where they are: what `kinds` asks for.

    A thread has an element, and counts those that come before it: as many as there are, which neighbouring threads
    read at a time. NaN is above all numbers, and of equal ones the first comes first.
    """
    x, axis = data_of(call), int(call.attrs.axis)
    shape = static_shape(x)
    line, made = WaitingLine.of(shape, axis), [*shape]
    made[axis % len(shape)] = count
    dtypes = [kinds[kind] if kind == "indices" else str(x.ty.dtype) for kind in kinds]

    def ordered(data: te.Tensor) -> list[te.Tensor]:
        def loops(operands: Sequence[tirx.Buffer], results: Sequence[tirx.Buffer]) -> tirx.Stmt:
            nest, (source,) = Threads(), operands
            with nest.threads(line.shape) as (before, own, behind):
                rank = nest.variable("rank", tirx.const(0, "int32"))
                own_key = nest.variable("own_key", _key(source, before, own, behind))
                with nest.loop("k", line.steps) as k:
                    key = nest.variable("key", _key(source, before, k, behind))
                    is_before = key.value < own_key.value if ascending else key.value > own_key.value
                    ties = tirx.all(key.value.equal(own_key.value), k < own)
                    rank.set(rank.value + tirx.any(is_before, ties).astype("int32"))
                with nest.when(rank.value < count):
                    for kind, result in zip(kinds, results, strict=True):
                        value = tirx.BufferLoad(source, [before, own, behind])
                        value = own.astype(kinds[kind]) if kind == "indices" else value
                        nest.store(result, [before, rank.value.astype("int64"), behind], value)
            return nest.finish()

        placed = (line.before, count, line.behind)
        found = te.extern([placed] * len(dtypes), [data], loops, name="ordered", dtype=dtypes)
        return list(found) if isinstance(found, list | tuple) else [found]

    rows = builder.emit(relax.op.reshape(x, line.shape))
    whole = builder.emit(builder.call_te(ordered, rows, primfunc_name_hint=call.op.name[6:]))
    parts = [whole] if len(dtypes) == 1 else [builder.emit(relax.TupleGetItem(whole, at)) for at in range(2)]
    return [builder.emit(relax.op.reshape(part, made)) for part in parts]


def _key(source: tirx.Buffer, *at: Expr) -> Expr:
    value = tirx.BufferLoad(source, list(at))
    return key_of(value.astype("int32") if str(source.dtype) == "bool" else value)


SORTING: dict[str, FLegalize] = {"relax.topk": _topk, "relax.sort": _sort, "relax.argsort": _sort}
