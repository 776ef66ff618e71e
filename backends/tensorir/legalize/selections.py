"""`where` with constants of one element in the text of its kernel: a mask's 0 and -inf are no tensors to read."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax, te, tirx, topi
from tvm.ir import GenericConst

from backends.tensorir.legalize.common import Expr, FLegalize
from fusion.shapes import known_shape


def _number(value: relax.Expr) -> Expr | None:
    """Return a constant of one element, None for anything else."""
    array = value.value.numpy() if isinstance(value, GenericConst) else None
    return None if array is None or array.size != 1 else tirx.const(array.item(), str(value.ty.dtype.dtype))


def _element(operand: te.Tensor | Expr, place: Sequence[Expr]) -> Expr:
    """Return what is chosen at a place of the result, along whose axes a tensor may be repeated."""
    if not isinstance(operand, te.Tensor):
        return operand
    own = place[len(place) - len(operand.shape) :]
    return operand(*(0 if int(extent) == 1 else at for at, extent in zip(own, operand.shape, strict=True)))


def _legalize_where(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    condition, *chosen = call.args
    numbers, shape = [_number(value) for value in chosen], known_shape(call)
    if shape is None or not any(number is not None for number in numbers):
        return builder.call_te(topi.where, *call.args, primfunc_name_hint="where")

    def select(condition: te.Tensor, *tensors: te.Tensor) -> te.Tensor:
        read = iter(tensors)
        operands = [next(read) if number is None else number for number in numbers]

        def choose(*place: Expr) -> Expr:
            return tirx.Select(_element(condition, place), *(_element(each, place) for each in operands))

        return te.compute(shape, choose, "T_where")

    read = (value for value, number in zip(chosen, numbers, strict=True) if number is None)
    return builder.call_te(select, condition, *read, primfunc_name_hint="where")


SELECTIONS: dict[str, FLegalize] = {"relax.where": _legalize_where}
