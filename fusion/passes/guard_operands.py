"""Has the run check what decides an address or traps: indices that are data, and what integers are divided by."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import tvm
from tvm import relax
from tvm.ir import GenericConst

from fusion.bindings import Bindings, call_name, data_of, operand
from fusion.errors import ShapeError
from fusion.frontends.origins import origins_of, without_origins
from fusion.guards import FROM_ZERO
from fusion.guards.check import check, check_in_numpy
from fusion.guards.conditions import Bounds
from fusion.guards.in_numpy import first_failure
from fusion.guards.kinds import Guard, operand_guard
from fusion.passes.ranges import Ranges
from fusion.passes.rebuild import rebuild_main
from fusion.shapes import is_static, static_shape

_AUTOMATIC = re.compile(r"(lv|gv)\d*")
"""Names that TVM gives."""
Place = tuple[int, ...]
"""Of an operand: its position in the call, and that in a tuple."""


class OperandCondition(NamedTuple):
    """What must hold of an operand.

    Attributes:
        place: Of the operand.
        kind, axes: As in `operand_guard`; the data is operand 0.
    """

    place: Place
    kind: str
    axes: tuple[int, ...] = ()


Find = Callable[[relax.Call], Iterator[OperandCondition]]


@dataclass(frozen=True)
class GuardOperands:
    """`R.take(x, i)`  ->  `R.take(x, R.call_tir(check_index, i))`, unless `i` is known to lie in the axis.

    Runs on the imported module, where results still have the names by which the frontend knows their operators.
    """

    name: str = "guard_operands"

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        """Return the module with its checks.

        Raises:
            ShapeError: The shapes of operands contradict each other, or the extreme of nothing is asked for.
        """
        origins, mod = origins_of(mod), without_origins(mod)
        from_zero = bool(mod.attrs and FROM_ZERO in mod.attrs)
        mod = mod.without_attr(FROM_ZERO) if from_zero else mod
        ranges = Ranges(mod["main"])
        found: dict[relax.Var, list[tuple[OperandCondition, str, Guard | None]]] = {}
        for var, value in Bindings.of(mod["main"]).values.items():
            where = origins.get(var.name) or _place(var, value)
            demands = _demands(value, where, from_zero)
            guarded = [(demand, where, _guard(value, demand, where)) for demand in demands]
            needed = [each for each in guarded if not _holds(ranges, value, each[0], each[2])]
            if needed:
                found[var] = needed

        def visit(builder: relax.BlockBuilder, var: relax.Var, value: relax.Expr) -> relax.Expr:
            for (place, kind, axes), where, guard in found.get(var, ()):
                operand = _at(value, place)
                if guard is None:
                    checked = check_in_numpy(builder, operand, data=data_of(value), kind=kind, where=where, axes=axes)
                else:
                    checked = check(builder, operand, guard)
                value = _replaced(value, place, builder.emit(checked, f"{var.name}_{kind}"))
            return value

        return rebuild_main(mod, visit) if found else mod


def unchecked(main: relax.Function) -> dict[relax.Var, tuple[int, ...]]:
    """Return of each operator on whose operands something is demanded what is known to hold, so that runs do not check
    it: 0 for each operand of which that is not, -1 for numbers that are less than 0, as a divisor may be, 2 for
    constant places of which some count from the end and are moved to what these are at this size, else 1."""
    demanding = {var: value for var, value in Bindings.of(main).values.items() if call_name(value) in _FIND}
    if not demanding:
        return {}
    ranges = Ranges(main)

    def sign(call: relax.Call, demand: OperandCondition) -> int:
        operand, guard = _at(call, demand.place), _guard(call, demand, "")
        if demand.kind == "index" and isinstance(operand, GenericConst) and guard is not None:
            places = operand.value.numpy()
            return 0 if first_failure(places, guard) is not None else 2 if (places < 0).any() else 1
        known = ranges.of(operand)
        if known is None or not _holds(ranges, call, demand, guard):
            return 0
        return -1 if known.low < 0 else 1

    return {
        var: tuple(sign(value, demand) for demand in _FIND[call_name(value)](value))
        for var, value in demanding.items()
    }  # fmt: skip


def _place(var: relax.Var, value: relax.Expr) -> str:
    """Return the operator with the name of its result, where that is more than TVM's number for it, or its operands."""
    if not _AUTOMATIC.fullmatch(var.name) or not isinstance(value, relax.Call):
        return f"{call_name(value)} {var.name!r}"
    operands = [
        f"{operand.ty.dtype}{list(static_shape(operand)) if is_static(operand) else ''}"
        for operand in value.args if isinstance(operand.ty, relax.TensorType)
    ]  # fmt: skip
    return f"{call_name(value)} of {' and '.join(operands)}"


def _demands(value: relax.Expr, where: str, from_zero: bool) -> Iterator[OperandCondition]:
    """Yield what must hold of the operands of `value`.

    `from_zero` says that no index that is data counts from the end, but in the operators that stand for `x[i, j]`.
    """
    contradict = _CONTRADICTIONS.get(call_name(value))
    for why in contradict(value) if contradict is not None and _are_static(value) else ():
        raise ShapeError(f"{call_name(value)} has no result for operands of these shapes", where=where, why=why)
    find = _FIND.get(call_name(value))
    from_zero = from_zero and call_name(value) not in ("index_tensor", "index_put")
    for demand in find(value) if find is not None else ():
        counts_up = from_zero and demand.kind == "index" and not isinstance(_at(value, demand.place), GenericConst)
        yield demand._replace(kind="position") if counts_up else demand


def _guard(call: relax.Call, demand: OperandCondition, where: str) -> Guard | None:
    """Return the check of a demand; None where only the run knows a size."""
    operand = _at(call, demand.place)
    if not is_static(operand) or not is_static(data_of(call)):
        return None
    return operand_guard(demand.kind, where, demand.axes, static_shape(data_of(call)))


def _holds(ranges: Ranges, call: relax.Call, demand: OperandCondition, guard: Guard | None) -> bool:
    """Return whether readers can take every value that the operand can hold as it is."""
    known = ranges.of(_at(call, demand.place))
    if known is None:
        return False
    if demand.kind == "divisor":
        return not known.low <= 0 <= known.high
    conditions = guard.conditions if guard is not None else ()
    return bool(conditions) and all(
        isinstance(bounds, Bounds) and known.low >= 0 and known.high <= bounds.high for bounds in conditions
    )


def _at(call: relax.Call, place: Place) -> relax.Expr:
    operand = call.args[place[0]]
    return operand.fields[place[1]] if len(place) == 2 else operand


def _replaced(call: relax.Call, place: Place, operand: relax.Expr) -> relax.Call:
    args = list(call.args)
    if len(place) == 2:
        fields = list(args[place[0]].fields)
        fields[place[1]] = operand
        operand = relax.Tuple(fields)
    args[place[0]] = operand
    return relax.Call(call.op, args, call.attrs, call.ty_args)


def _are_static(call: relax.Call) -> bool:
    return all(is_static(arg) for arg in call.args)


def _take(call: relax.Call) -> Iterator[OperandCondition]:
    """The modes "clip", "wrap" and "nan" say what an index outside reads."""
    if str(call.attrs.mode) == "fast" and isinstance(operand(call, "indices").ty, relax.TensorType):
        yield OperandCondition((1,), "index", () if call.attrs.axis is None else (_axis(call),))


def _along_axis(call: relax.Call) -> Iterator[OperandCondition]:
    yield OperandCondition((1,), "index", (_axis(call),))


def _axis(call: relax.Call) -> int:
    return int(call.attrs.axis) % max(int(data_of(call).ty.ndim), 1)


def _tuples(call: relax.Call) -> Iterator[OperandCondition]:
    """Index tuples along the last axis, which begin at the first axis that is no batch."""
    first, width = int(getattr(call.attrs, "batch_dims", 0)), int(operand(call, "indices").ty.shape[-1])
    if width:
        yield OperandCondition((1,), "index", tuple(range(first, first + width)))


def _fields(call: relax.Call) -> Iterator[OperandCondition]:
    """A tensor of indices for each axis from the first on."""
    for axis, field in enumerate(operand(call, "indices").fields):
        if str(field.ty.dtype) != "bool":
            yield OperandCondition((1, axis), "index", (axis,))


def _lengths(call: relax.Call) -> Iterator[OperandCondition]:
    yield OperandCondition((1,), "length", (int(call.attrs.seq_axis),))


def _samples(call: relax.Call) -> Iterator[OperandCondition]:
    """Of each draw, the row of probabilities that it is from."""
    yield OperandCondition((2,), "index", (0,))


def _boxes(call: relax.Call) -> Iterator[OperandCondition]:
    yield OperandCondition((1,), "box", (0,))


def _divisor(call: relax.Call) -> Iterator[OperandCondition]:
    if "int" in str(operand(call, "x2").ty.dtype):
        yield OperandCondition((1,), "divisor")


_FIND: dict[str, Find] = {
    "take": _take,
    "gather_elements": _along_axis,
    "scatter_elements": _along_axis,
    "gather_nd": _tuples,
    "scatter_nd": _tuples,
    "index_tensor": _fields,
    "index_put": _fields,
    "reverse_sequence": _lengths,
    "multinomial_from_uniform": _samples,
    "vision.roi_align": _boxes,
    "vision.roi_pool": _boxes,
    **dict.fromkeys(("divide", "floor_divide", "mod", "floor_mod"), _divisor),
}


def _element_shapes(call: relax.Call) -> Iterator[str]:
    """Each index that is not into the axis runs over the front of its own."""
    data, indices, *updates = map(static_shape, call.args)
    if len(data) != len(indices) or any(
        size > extent for at, (size, extent) in enumerate(zip(indices, data, strict=True)) if at != _axis(call)
    ):
        yield f"indices {list(indices)} of data {list(data)}"
    if any(shape != indices for shape in updates):
        yield f"indices {list(indices)} of updates {list(updates[0])}"


def _tuple_shapes(call: relax.Call) -> Iterator[str]:
    data, (*tuples, width), *updates = map(static_shape, call.args)
    first = int(getattr(call.attrs, "batch_dims", 0))
    if first + width > len(data) or tuple(tuples[:first]) != data[:first]:
        yield f"indices {[*tuples, width]} of data {list(data)}"
    elif any(shape != (*tuples, *data[width:]) for shape in updates):
        yield f"updates {list(updates[0])} at indices {[*tuples, width]} of data {list(data)}"


def _nothing_to_find(call: relax.Call) -> Iterator[str]:
    """The place of an extreme along an axis without entries, unless there is no such place either."""
    shape, axis = static_shape(data_of(call)), call.attrs.axis
    rest = () if axis is None else [extent for at, extent in enumerate(shape) if at != int(axis) % len(shape)]
    if 0 in shape and 0 not in rest:
        yield f"{list(shape)} has no entry along axis {0 if axis is None else int(axis)}"


_CONTRADICTIONS: dict[str, Callable[[relax.Call], Iterator[str]]] = {
    **dict.fromkeys(("gather_elements", "scatter_elements"), _element_shapes),
    **dict.fromkeys(("gather_nd", "scatter_nd"), _tuple_shapes),
    **dict.fromkeys(("argmax", "argmin"), _nothing_to_find),
}
