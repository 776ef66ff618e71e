"""In which order those that read a value want it, found from the outputs backwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tvm import relax
from tvm.ir import GenericConst

from fusion.passes.layout import order as orders
from fusion.passes.layout.families import (
    ALONG_AXIS,
    ELEMENTWISE,
    NORMS_OF_CHANNELS,
    NORMS_OF_ROWS,
    POOLS,
    REDUCTIONS,
    RESHAPES,
)
from fusion.passes.layout.order import Order, Shape
from fusion.passes.layout.placed import is_static
from fusion.passes.rebuild import bindings, call_name, static_shape


@dataclass(frozen=True)
class Wish:
    """An order, of which the `last` innermost axes matter."""

    order: Order
    last: int

    @staticmethod
    def exactly(order: Order) -> Wish:
        """Return the wish for every axis of `order`."""
        return Wish(order, len(order))

    @staticmethod
    def innermost(axes: tuple[int, ...], rank: int) -> Wish:
        """Return the wish that `axes` are the contiguous ones."""
        return Wish((*(axis for axis in range(rank) if axis not in axes), *axes), len(axes))

    def is_met(self, order: Order, shape: Shape) -> bool:
        """Return whether `order` has the axes that matter where they are wanted."""
        wanted = [axis for axis in self.order[len(self.order) - self.last :] if shape[axis] != 1]
        dense = [axis for axis in order if shape[axis] != 1]
        return dense[len(dense) - len(wanted) :] == wanted


Demand = Callable[[relax.Call, "Wish | None"], "Wish | None"]
"""(call, what is wanted of its result) -> what it wants of its first argument."""


def find_wishes(main: relax.Function) -> dict[relax.Var, Wish]:
    """Return what most readers of each variable want, the first of them where others are as many; no entry where none
    wants anything."""
    asked: dict[relax.Var, list[Wish]] = {}
    result = main.body.body
    for reader, wanted in _row_major(result):
        asked[reader] = [wanted]
    for var, value in reversed(list(bindings(main))):
        for reader, wanted in _demands(value, _most(asked.get(var, []))):
            asked.setdefault(reader, []).append(wanted)
    return {var: wish for var, wishes in asked.items() if (wish := _most(wishes)) is not None}


def _most(wishes: list[Wish]) -> Wish | None:
    counted = Counter(reversed(wishes)).most_common(1)
    return counted[0][0] if counted else None


def _demands(value: relax.Expr, wish: Wish | None) -> Iterator[tuple[relax.Var, Wish]]:
    """Yield each variable that `value` reads with what it wants of it; `wish` is what is wanted of `value`."""
    if isinstance(value, relax.Var | relax.TupleGetItem):
        source = value.tuple_value if isinstance(value, relax.TupleGetItem) else value
        if isinstance(source, relax.Var) and wish is not None:
            yield source, wish
        return
    name = call_name(value)
    if name in ELEMENTWISE or name == "concat":
        if wish is not None:
            fields = value.args[0].fields if name == "concat" else value.args
            yield from ((arg, wish) for arg in fields if _has_rank(arg, len(wish.order)))
    elif name in _DEMANDS and is_static(value.args[0]) and (name == "split" or is_static(value)):
        data = value.args[0]
        wanted = _DEMANDS[name](value, wish)
        if wanted is not None and _has_rank(data, len(wanted.order)):
            yield data, wanted
    elif name not in REDUCTIONS:
        yield from _row_major(value)


def _has_rank(expr: relax.Expr, rank: int) -> bool:
    """Return whether `expr` is a variable that holds a tensor of `rank` axes."""
    return isinstance(expr, relax.Var) and isinstance(expr.ty, relax.TensorType) and expr.ty.ndim == rank


def _row_major(expr: relax.Expr) -> Iterator[tuple[relax.Var, Wish]]:
    """Yield the tensors in `expr`, all wanted row-major."""
    if isinstance(expr, relax.Call):
        for arg in expr.args:
            yield from _row_major(arg)
    elif isinstance(expr, relax.Tuple):
        for field in expr.fields:
            yield from _row_major(field)
    elif isinstance(expr, relax.Var) and isinstance(expr.ty, relax.TensorType) and expr.ty.ndim >= 0:
        yield expr, Wish.exactly(orders.identity(expr.ty.ndim))


def _same(call: relax.Call, wish: Wish | None) -> Wish | None:
    """An operator that runs in any order."""
    return wish


def _image(call: relax.Call, wish: Wish | None) -> Wish | None:
    """An operator of images that runs channels-last."""
    return Wish.exactly(orders.channels_last(call.ty.ndim)) if _has_rule(call) else _plain(call, wish)


def _pool(call: relax.Call, wish: Wish | None) -> Wish | None:
    return wish if _has_rule(call) else _plain(call, wish)


def _conv2d(call: relax.Call, wish: Wish | None) -> Wish | None:
    """1x1 and depthwise ones run in either order."""
    shape = static_shape(call.args[1])
    either = shape[2:] == (1, 1) or int(call.attrs.groups) == shape[0]
    return _pool(call, wish) if either else _image(call, wish)


def _has_rule(call: relax.Call) -> bool:
    """Return whether an operator of images has its channels second and its weights known."""
    layout = getattr(call.attrs, "data_layout", None) or call.attrs.layout
    return layout[:2] == "NC" and all(isinstance(arg, GenericConst) for arg in call.args[1:] if is_static(arg))


def _plain(call: relax.Call, wish: Wish | None) -> Wish | None:
    return Wish.exactly(orders.identity(call.args[0].ty.ndim))


def _rows(call: relax.Call, wish: Wish | None) -> Wish | None:
    """A norm over axes that are contiguous at best."""
    rank = call.args[0].ty.ndim
    return Wish.innermost(tuple(int(axis) % rank for axis in call.attrs.axes), rank)


def _axis(call: relax.Call, wish: Wish | None) -> Wish | None:
    rank = call.args[0].ty.ndim
    return None if call.attrs.axis is None else Wish.innermost((int(call.attrs.axis) % rank,), rank)


def _matmul(call: relax.Call, wish: Wish | None) -> Wish | None:
    """Rows times a weight matrix want them contiguous, or where that is wanted of the result, the columns."""
    rank = call.args[0].ty.ndim
    if call.args[1].ty.ndim != 2:
        return Wish.exactly(orders.identity(rank))
    return wish if wish is not None and wish.order[-1] != rank - 1 else Wish.innermost((rank - 1,), rank)


def _permute(call: relax.Call, wish: Wish | None) -> Wish | None:
    if wish is None:
        return None
    axes = orders.transposed_axes(call.attrs.axes, len(wish.order))
    return Wish(tuple(axes[axis] for axis in wish.order), wish.last)


def _reshape(call: relax.Call, wish: Wish | None) -> Wish | None:
    """The order from which the wanted one follows without moving anything."""
    old, new = static_shape(call.args[0]), static_shape(call)
    if wish is None:
        return None
    if wish.order == orders.identity(len(new)) and old[len(old) - wish.last :] == new[len(new) - wish.last :]:
        return Wish(orders.identity(len(old)), min(wish.last, len(old)))
    needed, source = orders.reshape(wish.order, new, old)
    is_whole = wish.last == len(wish.order) and orders.same_storage(needed, wish.order, new)
    return Wish.exactly(source) if is_whole else None


_DEMANDS: dict[str, Demand] = {
    **dict.fromkeys((*NORMS_OF_CHANNELS, "nn.prelu", "nn.pad", "strided_slice", "take", "split"), _same),
    **dict.fromkeys(POOLS, _pool),
    **dict.fromkeys(("image.resize2d", "nn.conv2d_transpose"), _image),
    "nn.conv2d": _conv2d,
    **dict.fromkeys(NORMS_OF_ROWS, _rows),
    **dict.fromkeys(ALONG_AXIS, _axis),
    **dict.fromkeys(RESHAPES, _reshape),
    "permute_dims": _permute,
    "matmul": _matmul,
}
