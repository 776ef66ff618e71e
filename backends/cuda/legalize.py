"""Forms of operators for devices, in place of those for CPUs: averages of windows that are not all as wide, and what
waits for other elements as loops of which each turn of an outermost one is a thread: scatters, running sums, and the
first elements in order. `kernels/lines/` binds them.

    for element: out[element] = data[element]                        a launch
    for line: for k in its updates: out[..., indices[k], ...] = reduce(out[...], updates[k])      the next
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import relax, te, tirx, topi
from tvm.tirx import ForKind

from backends.cuda.kernels.device_arithmetic import pass_nan
from backends.tensorir.emit import Nest, int64
from backends.tensorir.legalize.common import NARROW, FLegalize, is_float
from backends.tensorir.legalize.scatters import REDUCTIONS
from backends.tensorir.legalize.sort_rows import key_of
from fusion.bindings import data_of
from fusion.declined import Declined
from fusion.shapes import known_shape, static_shape

Expr = Any  # a TensorIR expression

_FEW_LINES, _SHORT = 1 << 10, 1 << 13
"""Fewer lines than keep a device busy; steps of a line of which each may add all before it."""


@dataclass(frozen=True)
class _Line:
    """The axis along which elements wait for each other: how many lines are before it and behind it, and its steps."""

    before: int
    steps: int
    behind: int

    @classmethod
    def of(cls, shape: Sequence[int], axis: int) -> _Line:
        axis %= len(shape)
        return cls(prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :]))

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.before, self.steps, self.behind


class _Threads(Nest):
    """Loops of which each turn of an outermost one is a thread."""

    @contextmanager
    def threads(self, shape: Sequence[int]) -> Iterator[list[Expr]]:
        """Open the loop over the elements of a tensor of this shape; yield the indices of one."""
        with self.loop("thread", prod(shape), ForKind.PARALLEL) as thread:
            yield _split(thread, shape)

    def variable(self, name: str, value: Expr) -> Variable:
        """Return a variable of a thread that begins as `value`."""
        buffer = tirx.decl_buffer((1,), str(value.ty.dtype), name, scope="local")
        self.add(tirx.AllocBuffer(buffer))
        made = Variable(self, buffer)
        made.set(value)
        return made


@dataclass(frozen=True)
class Variable:
    """A number that a thread changes."""

    nest: Nest
    buffer: tirx.Buffer

    @property
    def value(self) -> Expr:
        """What it holds."""
        return tirx.BufferLoad(self.buffer, [int64(0)])

    def set(self, value: Expr) -> None:
        """Add the statement that changes it."""
        self.nest.store(self.buffer, [int64(0)], value)


def _split(position: Expr, shape: Sequence[int]) -> list[Expr]:
    """Return the indices of a position in row-major order."""
    indices: list[Expr] = []
    for extent in reversed(shape[1:]):
        size = int64(max(extent, 1))
        indices.append(tirx.floormod(position, size))
        position = tirx.floordiv(position, size)
    return [position, *indices[::-1]] if shape else []


# --- Scatters ---


def _scatter_elements(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """A thread has the updates of one line, in their order, so that the later of two that meet stays."""
    axis, reduction = int(call.attrs.axis), str(call.attrs.reduction)

    def write(nest: _Threads, out: tirx.Buffer, indices: tirx.Buffer, updates: tirx.Buffer) -> None:
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

    def write(nest: _Threads, out: tirx.Buffer, indices: tirx.Buffer, updates: tirx.Buffer) -> None:
        *tuples, width = (int(extent) for extent in indices.shape)
        inner = [int(extent) for extent in out.shape][width:]
        with nest.threads(inner) as element, nest.loop("tuple", prod(tuples)) as at:
            place = _split(at, tuples)
            target = [tirx.BufferLoad(indices, [*place, int64(column)]).astype("int64") for column in range(width)]
            update = tirx.BufferLoad(updates, [*place, *element])
            _put(nest, out, [*target, *element], update=update, reduction=reduction)

    return _scattered(builder, call, write, name="scatter_nd")


def _scattered(
    builder: relax.BlockBuilder,
    call: relax.Call,
    write: Callable[[_Threads, tirx.Buffer, tirx.Buffer, tirx.Buffer], None],
    name: str,
) -> relax.Expr:
    def scatter(data: te.Tensor, indices: te.Tensor, updates: te.Tensor) -> te.Tensor:
        def loops(operands: Sequence[tirx.Buffer], results: Sequence[tirx.Buffer]) -> tirx.Stmt:
            nest, (out,) = _Threads(), results
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


# --- Running sums ---


def _scan(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """A thread has a line; where there are few, each result adds all that is before it."""
    x, attrs = data_of(call), call.attrs
    shape, dtype = static_shape(x), str(attrs.dtype or x.ty.dtype)
    wide = "float32" if dtype in NARROW else dtype
    line = _Line(1, prod(shape), 1) if attrs.axis is None else _Line.of(shape, int(attrs.axis))
    scan = _Running(line, wide, multiplies=call.op.name.endswith("cumprod"), exclusive=bool(attrs.exclusive))
    rows = builder.emit(relax.op.reshape(x, line.shape))
    made = builder.emit(builder.call_te(scan.of, rows, primfunc_name_hint=call.op.name[6:]))
    made = builder.emit(relax.op.reshape(made, (prod(shape),) if attrs.axis is None else shape))
    return made if wide == dtype else relax.op.astype(made, dtype)


@dataclass(frozen=True)
class _Running:
    """Running sums along the steps of a line, or products where it `multiplies`; those of what is before each element
    where they are `exclusive`."""

    line: _Line
    dtype: str
    multiplies: bool
    exclusive: bool

    def of(self, data: te.Tensor) -> te.Tensor:
        """Return those of `data`, which has the shape of the line."""

        def loops(operands: Sequence[tirx.Buffer], results: Sequence[tirx.Buffer]) -> tirx.Stmt:
            nest, line = _Threads(), self.line
            is_few = line.before * line.behind < _FEW_LINES and line.steps <= _SHORT
            (self._results if is_few else self._lines)(nest, operands[0], results[0])
            return nest.finish()

        return te.extern([self.line.shape], [data], loops, name="running", dtype=[self.dtype])

    def _results(self, nest: _Threads, source: tirx.Buffer, out: tirx.Buffer) -> None:
        with nest.threads(self.line.shape) as (before, step, behind):
            total = nest.variable("total", self._start)
            with nest.loop("k", step + (0 if self.exclusive else 1)) as k:
                self._take(total, tirx.BufferLoad(source, [before, k, behind]))
            nest.store(out, [before, step, behind], total.value)

    def _lines(self, nest: _Threads, source: tirx.Buffer, out: tirx.Buffer) -> None:
        with nest.threads((self.line.before, self.line.behind)) as (before, behind):
            total = nest.variable("total", self._start)
            with nest.loop("step", self.line.steps) as step:
                place = [before, step, behind]
                if self.exclusive:
                    nest.store(out, place, total.value)
                self._take(total, tirx.BufferLoad(source, place))
                if not self.exclusive:
                    nest.store(out, place, total.value)

    @property
    def _start(self) -> Expr:
        """-0, so that a first -0 stays; 0 is what comes before it."""
        none = -0.0 if "float" in self.dtype and not self.exclusive else 0
        return tirx.const(1 if self.multiplies else none, self.dtype)

    def _take(self, total: Variable, element: Expr) -> None:
        wide = element.astype(self.dtype)
        total.set(total.value * wide if self.multiplies else total.value + wide)


# --- Order ---


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
    line, made = _Line.of(shape, axis), [*shape]
    made[axis % len(shape)] = count
    dtypes = [kinds[kind] if kind == "indices" else str(x.ty.dtype) for kind in kinds]

    def ordered(data: te.Tensor) -> list[te.Tensor]:
        def loops(operands: Sequence[tirx.Buffer], results: Sequence[tirx.Buffer]) -> tirx.Stmt:
            nest, (source,) = _Threads(), operands
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


# --- Pools ---


def _adaptive_average(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Windows that are not all as wide are as wide as the widest, of which those behind the end count nothing; TVM's
    loops have another number of turns for each."""
    x, layout = data_of(call), str(call.attrs.layout)
    axes = [at for at, letter in enumerate(layout) if letter in "DHW"]
    shape, made = static_shape(x), static_shape(call)
    if all(shape[axis] % made[axis] == 0 for axis in axes):
        sizes = [made[axis] for axis in axes]
        pool = topi.nn.adaptive_pool if len(axes) == 2 else getattr(topi.nn, f"adaptive_pool{len(axes)}d")
        return builder.call_te(pool, x, sizes, "avg", layout, primfunc_name_hint=call.op.name[9:])
    dtype = str(x.ty.dtype)
    wide = "float32" if dtype in NARROW else dtype

    def ends(axis: int, cell: Expr) -> tuple[Expr, Expr]:
        extent, out = shape[axis], made[axis]
        return tirx.floordiv(cell * extent, out), tirx.floordiv((cell + 1) * extent + out - 1, out)

    def pooled(data: te.Tensor) -> te.Tensor:
        widths = [max(-(-(cell + 1) * shape[axis] // made[axis]) - cell * shape[axis] // made[axis]
                      for cell in range(made[axis])) for axis in axes]  # fmt: skip
        steps = [te.reduce_axis((0, width), f"r{axis}") for axis, width in zip(axes, widths, strict=True)]

        def total(*at: Expr) -> Expr:
            place, inside = list(at), []
            for axis, step in zip(axes, steps, strict=True):
                first, end = ends(axis, at[axis])
                place[axis] = first + step
                inside.append(first + step < end)
            value = tirx.if_then_else(tirx.all(*inside), data(*place).astype(wide), tirx.const(0, wide))
            return te.sum(value, axis=steps)

        def mean(*at: Expr) -> Expr:
            count: Expr = int64(1)
            for axis in axes:
                first, end = ends(axis, at[axis])
                count = count * (end - first)
            return (sums(*at) / count.astype(wide)).astype(dtype)

        sums = te.compute(made, total, "pool_sum")
        return te.compute(made, mean, "pool_avg")

    return builder.call_te(pooled, x, primfunc_name_hint=call.op.name[9:])


def _of_known_shapes(legalize: FLegalize) -> FLegalize:
    def checked(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        if any(known_shape(each) is None for each in call.args):
            raise Declined("only the run knows a shape of it")
        return legalize(builder, call)

    return checked


LEGALIZATIONS: dict[str, FLegalize] = {
    name: _of_known_shapes(legalize)
    for name, legalize in {
        "relax.scatter_elements": _scatter_elements, "relax.scatter_nd": _scatter_nd,
        "relax.cumsum": _scan, "relax.cumprod": _scan,
        "relax.topk": _topk, "relax.sort": _sort, "relax.argsort": _sort,
        **{f"relax.nn.adaptive_avg_pool{rank}d": _adaptive_average for rank in (1, 2, 3)},
    }.items()
}  # fmt: skip
