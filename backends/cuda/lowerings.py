"""Products as anchors: matmuls whose operands lie as they are, and convolutions of images with channels last.

Sums are float32 whatever is multiplied; the result is rounded behind them, in the same kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from tvm import relax, te, tirx
from tvm.ir import GenericConst

from backends.backend import Lowering
from backends.cuda.kernels.device_arithmetic import NARROW
from backends.tensorir.emit import Expr
from fusion.bindings import call_name
from fusion.constants import constant, reshaped, transposed
from fusion.declined import Declined
from fusion.shapes import is_static, known_shape, static_shape
from fusion.tensors import as_numpy, numpy_dtype
from partition.access import ANCHOR, BATCH_MATMUL

_PRODUCT = "product"
"""The kind of these anchors, but for matmuls, of which chains are made."""
_SUMMED_LAST, _MADE_LAST = (0, 2, 3, 1), (2, 3, 1, 0)
"""Orders of the axes O, I, H, W of weights."""
_DTYPES = ("float16", "bfloat16", "float32")


@dataclass(frozen=True)
class _Product:
    """A `Lowering`."""

    name: str
    write: Callable[[relax.BlockBuilder, relax.Call], relax.Expr]

    def concerns(self, builder: relax.BlockBuilder, call: relax.Call) -> bool:
        """Return True: there is one form of each operator."""
        return True

    def apply(self, builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        """Return `call` as an anchor.

        Raises:
            Declined: Its sizes are not known, or it multiplies other numbers than two of one type.
        """
        if not all(is_static(part) for part in (call, *call.args)):
            raise Declined("only the run knows a shape of it")
        if reason := why_not_multiplied(call):
            raise Declined(reason)
        return self.write(builder, call)


def why_not_multiplied(call: relax.Call) -> str:
    """Return why the dtypes of a product's operands have no anchor; "" where they have one."""
    left, right = (str(operand.ty.dtype.dtype) for operand in call.args)
    return "" if left == right and left in _DTYPES else f"it multiplies {left} and {right}"


def _matmul(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    left, right = call.args
    if any(len(operand.ty.shape) < 2 for operand in call.args):
        raise Declined("an operand of it is a vector")
    return builder.call_te(_sums_of_rows, left, right, str(call.ty.dtype.dtype), primfunc_name_hint="matmul")


def _sums_of_rows(left: te.Tensor, right: te.Tensor, dtype: str) -> te.Tensor:
    k = te.reduce_axis((0, left.shape[-1]), "k")
    batch = np.broadcast_shapes(*(tuple(int(n) for n in operand.shape[:-2]) for operand in (left, right)))

    def sum_over_k(*at: Expr) -> Expr:
        *which, m, n = at
        return _sum(left(*_of(left, which), m, k), right(*_of(right, which), k, n), [k])

    return _rounded(_anchor((*batch, left.shape[-2], right.shape[-1]), sum_over_k, "matmul", BATCH_MATMUL), dtype)


def _of(operand: te.Tensor, batch: list[Expr]) -> list[Expr]:
    """Return the batch that a broadcast operand is read at."""
    return _at_broadcast(operand.shape[:-2], batch)


def _at_broadcast(shape: Sequence[Expr], at: Sequence[Expr]) -> list[Expr]:
    """Return where a tensor is read that is broadcast."""
    extents = [int(extent) for extent in shape]
    own = at[len(at) - len(extents) :]
    return [index if extent != 1 else tirx.const(0, "int64") for extent, index in zip(extents, own, strict=True)]


def _conv2d(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    data, weight = call.args
    attrs = call.attrs
    if (attrs.data_layout, attrs.kernel_layout) != ("NHWC", "OIHW"):
        raise Declined("its channels are not last")
    # Neighbours are those of the image: channels that are summed or, in groups, which have few of them, made.
    order = _SUMMED_LAST if int(attrs.groups) == 1 else _MADE_LAST
    turned = transposed(builder, weight, order)
    compute = partial(_sums_of_windows, window=_Window.of(attrs), dtype=str(call.ty.dtype.dtype))
    return builder.call_te(compute, data, turned, primfunc_name_hint="conv2d")


@dataclass(frozen=True)
class _Window:
    """Groups of a convolution, and its steps, distances of taps and borders, of rows and of columns."""

    groups: int
    strides: tuple[int, int]
    dilations: tuple[int, int]
    before: tuple[int, int]
    behind: tuple[int, int]

    @staticmethod
    def of(attrs: relax.Attrs) -> _Window:
        padding = [int(n) for n in attrs.padding]
        top, left, bottom, right = padding if len(padding) == 4 else (padding * 2)[:2] * 2
        steps, taps = (tuple(int(n) for n in each) for each in (attrs.strides, attrs.dilation))
        return _Window(int(attrs.groups), (steps[0], steps[-1]), (taps[0], taps[-1]), (top, left), (bottom, right))


def _sums_of_windows(data: te.Tensor, weight: te.Tensor, window: _Window, dtype: str) -> te.Tensor:
    images, *sizes, _ = (int(n) for n in data.shape)
    extents = [int(n) for n in weight.shape]
    channels, *taps, depth = extents if window.groups == 1 else (extents[3], extents[0], extents[1], extents[2])
    made = [
        (size + before + behind - dilation * (tap - 1) - 1) // stride + 1
        for size, tap, before, behind, dilation, stride in zip(
            sizes, taps, window.before, window.behind, window.dilations, window.strides, strict=True
        )
    ]
    ry, rx, rc = (te.reduce_axis((0, n), name) for n, name in zip((*taps, depth), ("ry", "rx", "rc"), strict=True))

    def sum_over_window(n: Expr, y: Expr, x: Expr, o: Expr) -> Expr:
        at, conditions = [], []
        for place, tap, axis in ((y, ry, 0), (x, rx, 1)):
            position = place * window.strides[axis] + tap * window.dilations[axis] - window.before[axis]
            at.append(position)
            if window.before[axis]:
                conditions.append(position >= 0)
            if window.behind[axis]:
                conditions.append(position < sizes[axis])
        first = 0 if window.groups == 1 else o // (channels // window.groups) * depth
        value = data(n, *at, first + rc)
        if conditions:
            value = tirx.if_then_else(tirx.all(*conditions), value, tirx.const(0, data.dtype))
        taken = weight(o, ry, rx, rc) if window.groups == 1 else weight(ry, rx, rc, o)
        return _sum(value, taken, [ry, rx, rc])

    return _rounded(_anchor((images, *made, channels), sum_over_window, "conv2d"), dtype)


def _conv2d_transpose(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    data, weight = call.args
    attrs = call.attrs
    if (attrs.data_layout, attrs.kernel_layout) != ("NHWC", "IOHW"):
        raise Declined("its channels are not last")
    groups, shape = int(attrs.groups), static_shape(call)
    turned = transposed(builder, weight, (1, 2, 3, 0)) if groups == 1 else _made_last(builder, weight, groups)
    compute = partial(_sums_of_spread, window=_Window.of(attrs), shape=shape, dtype=str(call.ty.dtype.dtype))
    return builder.call_te(compute, data, turned, primfunc_name_hint="conv2d_transpose")


def _made_last(builder: relax.BlockBuilder, weight: relax.Expr, groups: int) -> relax.Expr:
    """Return weights of G groups, I x O/G x H x W, as H x W x I/G x O."""
    depth, made, height, width = static_shape(weight)
    by_group = reshaped(builder, weight, (groups, depth // groups, made, height, width))
    turned = transposed(builder, by_group, (3, 4, 1, 0, 2))
    return reshaped(builder, turned, (height, width, depth // groups, groups * made))


def _sums_of_spread(
    data: te.Tensor, weight: te.Tensor, *, window: _Window, shape: tuple[int, ...], dtype: str
) -> te.Tensor:
    """Each pixel is the sum of those that reach it by a tap: the others of the window count as zero."""
    sizes, extents, groups = [int(n) for n in data.shape[1:3]], [int(n) for n in weight.shape], window.groups
    *taps, depth = extents[1:] if groups == 1 else extents[:3]
    ry, rx, rc = (te.reduce_axis((0, n), name) for n, name in zip((*taps, depth), ("ry", "rx", "rc"), strict=True))

    def sum_over_taps(n: Expr, y: Expr, x: Expr, o: Expr) -> Expr:
        at, conditions = [], []
        for place, tap, axis in ((y, ry, 0), (x, rx, 1)):
            reached, stride = place + window.before[axis] - tap * window.dilations[axis], window.strides[axis]
            at.append(tirx.floordiv(reached, stride))
            conditions += [reached >= 0, at[-1] < sizes[axis]]
            conditions += [tirx.floormod(reached, stride).equal(0)] if stride > 1 else []
        first = 0 if groups == 1 else o // (shape[3] // groups) * depth
        value = tirx.if_then_else(tirx.all(*conditions), data(n, *at, first + rc), tirx.const(0, data.dtype))
        return _sum(value, weight(o, ry, rx, rc) if groups == 1 else weight(ry, rx, rc, o), [ry, rx, rc])

    return _rounded(_anchor(shape, sum_over_taps, "conv2d_transpose"), dtype)


@dataclass(frozen=True)
class _NarrowShift:
    """A `Lowering`: what is added to sums of narrow numbers lies as a constant as narrow as they are, where that is
    exact, as it is of a model's own biases; kernels widen it where they load it. cuDNN has no engine for another."""

    name: str = "sum with a narrow constant"

    def concerns(self, builder: relax.BlockBuilder, call: relax.Call) -> bool:
        """Return whether sums of narrow numbers and a constant are added, which makes them no larger."""
        sums, shift = call.args
        grows = known_shape(sums) != known_shape(call)
        return isinstance(shift, GenericConst) and not grows and _multiplied(builder, sums) != ""

    def apply(self, builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        """Return the sum with the constant as narrow as what was multiplied.

        Raises:
            Declined: The constant has other numbers.
        """
        sums, shift = call.args
        dtype, array = _multiplied(builder, sums), as_numpy(shift.value)
        with np.errstate(over="ignore"):
            narrow = array.astype(numpy_dtype(dtype))
        if not np.array_equal(narrow.astype(array.dtype), array):
            raise Declined(f"{dtype} lacks numbers of its constant")
        return builder.call_te(_sum_with_widened, sums, constant(narrow), primfunc_name_hint="add")


def _multiplied(builder: relax.BlockBuilder, sums: relax.Expr) -> str:
    """Return the narrow dtype of the operands of which a lowering made sums in float32; "" for anything else."""
    made = builder.lookup_binding(sums) if isinstance(sums, relax.Var) else None
    if made is None or call_name(made) != "call_tir" or str(sums.ty.dtype.dtype) != "float32":
        return ""
    _, operands, *_ = made.args
    dtypes = {str(operand.ty.dtype.dtype) for operand in operands.fields}
    return next(iter(dtypes)) if len(dtypes) == 1 and dtypes <= NARROW else ""


def _sum_with_widened(sums: te.Tensor, shift: te.Tensor) -> te.Tensor:
    return te.compute(
        sums.shape,
        lambda *at: sums(*at) + shift(*_at_broadcast(shift.shape, at)).astype(sums.dtype),
        name="add",
    )


def _sum(left: Expr, right: Expr, axes: list[tirx.IterVar]) -> Expr:
    wide = [factor if str(factor.ty.dtype) == "float32" else factor.astype("float32") for factor in (left, right)]
    return te.sum(wide[0] * wide[1], axis=axes)


def _anchor(shape: tuple[Expr, ...], value: Callable[..., Expr], name: str, kind: str = _PRODUCT) -> te.Tensor:
    return te.compute(shape, value, name=name, attrs={ANCHOR: kind})


def _rounded(sums: te.Tensor, dtype: str) -> te.Tensor:
    if sums.dtype == dtype:
        return sums
    return te.compute(sums.shape, lambda *at: sums(*at).astype(dtype), name="rounded")


LOWERINGS: Mapping[str, tuple[Lowering, ...]] = {
    "relax.add": (_NarrowShift(),),
    "relax.matmul": (_Product("matmul", _matmul),),
    "relax.nn.conv2d": (_Product("conv2d", _conv2d),),
    "relax.nn.conv2d_transpose": (_Product("conv2d_transpose", _conv2d_transpose),),
}
"""By operator."""
