"""Which layout the readers of each value prefer, found in one pass backwards from the outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tvm import relax

from backends.backend import LayoutPolicy
from fusion.bindings import Bindings, call_name, data_of, operand
from fusion.operators import OperatorKind, of_kind
from fusion.passes.layout import order as orders
from fusion.passes.layout.order import Order, Shape
from fusion.shapes import is_static, static_shape

_ELEMENTWISE, _REDUCTIONS = of_kind(OperatorKind.ELEMENTWISE), of_kind(OperatorKind.REDUCTION)
_CONVOLUTIONS = ("nn.conv2d", "nn.conv2d_transpose")
_POOLS = of_kind(OperatorKind.POOL)
_ON_IMAGES = frozenset((*_POOLS, *_CONVOLUTIONS, "image.resize2d"))


@dataclass(frozen=True)
class Preference:
    """A preferred order, of which only the `last` innermost axes matter."""

    order: Order
    last: int

    @staticmethod
    def exactly(order: Order) -> Preference:
        """Return the preference for `order` in all axes."""
        return Preference(order, len(order))

    @staticmethod
    def innermost(axes: tuple[int, ...], rank: int) -> Preference:
        """Return the preference for `axes` as the innermost ones."""
        return Preference((*(axis for axis in range(rank) if axis not in axes), *axes), len(axes))

    def is_met(self, order: Order, shape: Shape) -> bool:
        """Return whether `order` meets the preference, for a tensor of this shape."""
        wanted = [axis for axis in self.order[len(self.order) - self.last :] if shape[axis] != 1]
        dense = [axis for axis in order if shape[axis] != 1]
        return dense[len(dense) - len(wanted) :] == wanted


Preferred = Callable[[relax.Call, "Preference | None"], "Preference | None"]
"""(call, preference of its result) -> its preference for its first argument."""


def find_preferences(main: relax.Function, policy: LayoutPolicy) -> dict[relax.Var, Preference]:
    """Return the preference of most readers of each variable, the first one in a tie; no entry without a preference."""
    asked: dict[relax.Var, list[Preference]] = {}
    result = main.body.body
    for reader, wanted in _row_major(result):
        asked[reader] = [wanted]
    for var, value in reversed(list(Bindings.of(main).values.items())):
        for reader, wanted in _preferred(value, _most(asked.get(var, [])), policy):
            asked.setdefault(reader, []).append(wanted)
    return {var: preference for var, preferences in asked.items() if (preference := _most(preferences)) is not None}


def _most(preferences: list[Preference]) -> Preference | None:
    counted = Counter(reversed(preferences)).most_common(1)
    return counted[0][0] if counted else None


def _preferred(
    value: relax.Expr, preference: Preference | None, policy: LayoutPolicy
) -> Iterator[tuple[relax.Var, Preference]]:
    """Yield each variable that `value` reads with its preference for it, given the `preference` of the readers of
    `value`."""
    if isinstance(value, relax.Var | relax.TupleGetItem):
        source = value.tuple_value if isinstance(value, relax.TupleGetItem) else value
        if isinstance(source, relax.Var) and preference is not None:
            yield source, preference
        return
    name = call_name(value)
    if name in _ELEMENTWISE or name == "concat":
        if preference is not None:
            fields = data_of(value).fields if name == "concat" else value.args
            yield from ((arg, preference) for arg in fields if _has_rank(arg, len(preference.order)))
    elif name in _PREFERRED and is_static(data_of(value)) and (name == "split" or is_static(value)):
        data = data_of(value)
        has_rule = name not in _ON_IMAGES or _has_rule(value, policy)
        wanted = _PREFERRED[name](value, preference) if has_rule else Preference.exactly(orders.identity(data.ty.ndim))
        if wanted is not None and _has_rank(data, len(wanted.order)):
            yield data, wanted
    elif name not in _REDUCTIONS:
        yield from _row_major(value)


def _has_rank(expr: relax.Expr, rank: int) -> bool:
    """Return whether `expr` is a variable that holds a tensor of `rank` axes."""
    return isinstance(expr, relax.Var) and isinstance(expr.ty, relax.TensorType) and expr.ty.ndim == rank


def _row_major(expr: relax.Expr) -> Iterator[tuple[relax.Var, Preference]]:
    """Yield the tensors in `expr`, with the preference for row-major order."""
    if isinstance(expr, relax.Call):
        for arg in expr.args:
            yield from _row_major(arg)
    elif isinstance(expr, relax.Tuple):
        for field in expr.fields:
            yield from _row_major(field)
    elif isinstance(expr, relax.Var) and isinstance(expr.ty, relax.TensorType) and expr.ty.ndim >= 0:
        yield expr, Preference.exactly(orders.identity(expr.ty.ndim))


def _same(call: relax.Call, preference: Preference | None) -> Preference | None:
    """An operator that runs in any order passes the preference on."""
    return preference


def _image(call: relax.Call, preference: Preference | None) -> Preference | None:
    """An operator on images runs channels-last."""
    return Preference.exactly(orders.channels_last(call.ty.ndim))


def _conv2d(call: relax.Call, preference: Preference | None) -> Preference | None:
    """1x1 and depthwise convolutions run in both orders, others channels-last."""
    shape = static_shape(operand(call, "weight"))
    either = shape[2:] == (1, 1) or int(call.attrs.groups) == shape[0]
    return preference if either else _image(call, preference)


def _has_rule(call: relax.Call, policy: LayoutPolicy) -> bool:
    """Return whether an operator on images has a layout rule: it is NCHW and, if it is a convolution, can run
    channels-last."""
    layout = getattr(call.attrs, "data_layout", None) or call.attrs.layout
    is_convolution = call_name(call) in _CONVOLUTIONS
    return layout[:2] == "NC" and not (is_convolution and policy.why_not_channels_last(call, operand(call, "weight")))


def _rows(call: relax.Call, preference: Preference | None) -> Preference | None:
    """A normalisation prefers its axes to be innermost."""
    rank = data_of(call).ty.ndim
    return Preference.innermost(tuple(int(axis) % rank for axis in call.attrs.axes), rank)


def _axis(call: relax.Call, preference: Preference | None) -> Preference | None:
    rank = data_of(call).ty.ndim
    return None if call.attrs.axis is None else Preference.innermost((int(call.attrs.axis) % rank,), rank)


def _matmul(call: relax.Call, preference: Preference | None) -> Preference | None:
    """A product with a weight matrix prefers contiguous rows, or columns if the readers of the result do."""
    rank = data_of(call).ty.ndim
    if operand(call, "x2").ty.ndim != 2:
        return Preference.exactly(orders.identity(rank))
    by_columns = preference is not None and preference.order[-1] != rank - 1
    return preference if by_columns else Preference.innermost((rank - 1,), rank)


def _permute(call: relax.Call, preference: Preference | None) -> Preference | None:
    if preference is None:
        return None
    axes = orders.transposed_axes(call.attrs.axes, len(preference.order))
    return Preference(tuple(axes[axis] for axis in preference.order), preference.last)


def _reshape(call: relax.Call, preference: Preference | None) -> Preference | None:
    """A reshape prefers the order from which the preferred one follows without moving data."""
    old, new = static_shape(data_of(call)), static_shape(call)
    if preference is None:
        return None
    last = preference.last
    if preference.order == orders.identity(len(new)) and old[len(old) - last :] == new[len(new) - last :]:
        return Preference(orders.identity(len(old)), min(preference.last, len(old)))
    needed, source = orders.reshape(preference.order, new, old)
    is_whole = preference.last == len(preference.order) and orders.same_storage(needed, preference.order, new)
    return Preference.exactly(source) if is_whole else None


_PREFERRED: dict[str, Preferred] = {
    **dict.fromkeys(
        (*of_kind(OperatorKind.CHANNEL_NORM), *_POOLS, "nn.prelu", "nn.pad", "strided_slice", "take", "split"), _same
    ),
    **dict.fromkeys(("image.resize2d", "nn.conv2d_transpose"), _image),
    "nn.conv2d": _conv2d,
    **dict.fromkeys(of_kind(OperatorKind.ROW_NORM), _rows),
    **dict.fromkeys(of_kind(OperatorKind.ALONG_AXIS), _axis),
    **dict.fromkeys(of_kind(OperatorKind.RESHAPE), _reshape),
    "permute_dims": _permute,
    "matmul": _matmul,
}
