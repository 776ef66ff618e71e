"""The operators that run on tensors whose axes lie in parts as they are.

A rule gets the call and its tensors, of which one is `Factored`; where it raises `Declined`, that one moves to an order
of its axes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm import relax
from tvm.ir import GenericConst

from fusion.constants import constant
from fusion.declined import Declined
from fusion.operators import OperatorKind, of_kind
from fusion.passes.layout import order as orders
from fusion.passes.layout.call_context import CallContext
from fusion.passes.layout.factored import Factored, factored, reshape
from fusion.passes.layout.placed import Placed
from fusion.passes.rebuild import with_attrs
from fusion.shapes import static_shape

Run = Callable[[CallContext, relax.Call, "list[Placed | Factored]"], "Placed | Factored"]


@dataclass(frozen=True)
class FactoredRule:
    """How an operator runs on parts.

    Attributes:
        run: Returns what holds the result. Raises `Declined` with the reason.
        concerns: Whether it is better run so, as far as such operators go; where not, nobody asks why.
    """

    run: Run
    concerns: Callable[[CallContext, Factored], bool] = lambda context, data: True


def _reshape(context: CallContext, call: relax.Call, args: list[Placed | Factored]) -> Placed | Factored:
    return reshape(context.builder, args[0], static_shape(context.builder.normalize(call)))


def _permute(context: CallContext, call: relax.Call, args: list[Placed | Factored]) -> Factored:
    (data,) = args
    axes = orders.transposed_axes(call.attrs.axes, len(data.shape))
    return (data if isinstance(data, Factored) else factored(data)).permuted(axes)


def _moves_contiguous(context: CallContext, data: Factored) -> bool:
    """Return whether a move to the wanted order would be a kernel of its own: the one before takes others along."""
    return not data.keeps_last(data.wanted_order(context.preference))


def _elementwise(context: CallContext, call: relax.Call, args: list[Placed | Factored]) -> Factored:
    """Tensors that lie in the same parts, with constants, before a move that ends their kernel."""
    data, *others = [arg for arg in args if isinstance(arg, Factored)]
    alike = all((other.factors, other.axes) == (data.factors, data.axes) for other in others)
    values = [arg.stored for arg in args if isinstance(arg, Placed)]
    if not alike or not all(map(_is_constant, values)):
        raise Declined("its operands lie in other parts")
    if static_shape(context.builder.normalize(call)) != data.shape:
        raise Declined("it broadcasts")
    operands = [
        arg.in_memory(context.builder)
        if isinstance(arg, Factored)
        else constant(data.arranged(arg.stored.value.numpy()))
        for arg in args
    ]
    made = context.builder.emit(with_attrs(call, [*operands, *call.args[len(args) :]]))
    return Factored(made, data.factors, data.axes)


def _is_constant(expr: relax.Expr) -> bool:
    return isinstance(expr, GenericConst)


def _instance_norm(context: CallContext, call: relax.Call, args: list[Placed | Factored]) -> Factored:
    """A norm over a flattened image as a whole: which of its elements is where does not matter."""
    data, *weights = args
    channel = int(call.attrs.channel_axis)
    if not isinstance(data, Factored) or data.shape[channel] != 1:
        raise Declined("it has several channels")
    normed = {place + 1 for axis in call.attrs.axes for place in data.axes[int(axis)]}
    stored = data.in_memory(context.builder, lead=1)
    operands = [stored, *(weight.stored for weight in weights)]
    made = context.builder.emit(with_attrs(call, operands, axes=sorted(normed), channel_axis=0))
    return Factored(made, data.factors, data.axes)


FACTORED_RULES: dict[str, FactoredRule] = {
    **dict.fromkeys(of_kind(OperatorKind.ELEMENTWISE), FactoredRule(_elementwise, _moves_contiguous)),
    **dict.fromkeys(of_kind(OperatorKind.RESHAPE), FactoredRule(_reshape)),
    "permute_dims": FactoredRule(_permute),
    "nn.instance_norm": FactoredRule(_instance_norm),
}
