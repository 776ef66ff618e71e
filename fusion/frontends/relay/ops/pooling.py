"""Pooling over windows, over whole images, and over windows that follow from the size of the result."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax
from tvm.relax import Expr

from fusion.constants import constant
from fusion.declined import Declined
from fusion.frontends.relay.call import Call, dtype_of, shape_of
from fusion.frontends.relay.layouts import relayout
from fusion.frontends.relay.registry import translates
from fusion.frontends.relay.windows import SPATIAL, check_window, padding_of, per_axis
from fusion.tensors import numpy_dtype

_MAX: dict[int, Callable[..., Expr]] = {1: relax.op.nn.max_pool1d, 2: relax.op.nn.max_pool2d, 3: relax.op.nn.max_pool3d}
_AVERAGE: dict[int, Callable[..., Expr]] = {
    1: relax.op.nn.avg_pool1d,
    2: relax.op.nn.avg_pool2d,
    3: relax.op.nn.avg_pool3d,
}


@translates("nn.max_pool1d", "nn.max_pool2d", "nn.max_pool3d")
def max_pool(call: Call) -> Expr:
    return pool(call, call.x(0), _MAX)


@translates("nn.avg_pool1d", "nn.avg_pool2d", "nn.avg_pool3d")
def avg_pool(call: Call) -> Expr:
    return average_pool(call, call.x(0))


def average_pool(call: Call, x: Expr) -> Expr:
    """Return the means of `x` over the windows that the attributes of `call` describe; of integers, rounded towards
    zero."""
    # TVM's pooling of int32 computes int64, whatever its type says.
    dtype = dtype_of(x)
    wide = call.emit(relax.op.astype(x, "int64")) if "int" in dtype else x
    result = pool(call, wide, _AVERAGE, count_include_pad=call.flag("count_include_pad", False))
    return result if wide is x else relax.op.astype(result, dtype)


def pool(call: Call, x: Expr, functions: dict[int, Callable[..., Expr]], **options: bool) -> Expr:
    """Return `x`, which lies as attribute `layout` says, pooled by the function for its number of spatial axes."""
    rank = _rank(call)
    plain, source = f"NC{SPATIAL[rank]}", call.text("layout", f"NC{SPATIAL[rank]}")
    x = relayout(call, x, source, plain)
    kernel, dilation = per_axis(call, "pool_size", rank), per_axis(call, "dilation", rank)
    padding = padding_of(call, rank)
    extents = [(size - 1) * step + 1 for size, step in zip(kernel, dilation, strict=True)]
    check_window(shape_of(x)[2:], extents, padding)
    strides, ceil = per_axis(call, "strides", rank), call.flag("ceil_mode", False)
    result = call.emit(functions[rank](x, kernel, strides, padding, dilation, ceil, **options))
    return relayout(call, result, plain, call.text("out_layout", "") or source)


def _rank(call: Call) -> int:
    """Return the number of spatial axes, which the operator's name says."""
    return next(rank for rank in SPATIAL if f"pool{rank}d" in call.operator)


@translates("nn.global_max_pool2d", "nn.global_avg_pool2d")
def global_pool(call: Call) -> Expr:
    return _by_size(call, (1, 1), "max" if "max" in call.operator else "mean")


@translates("nn.adaptive_avg_pool1d", "nn.adaptive_avg_pool2d", "nn.adaptive_avg_pool3d")
def adaptive_avg_pool(call: Call) -> Expr:
    return _by_size(call, _output_size(call), "mean")


@translates("nn.adaptive_max_pool1d", "nn.adaptive_max_pool2d", "nn.adaptive_max_pool3d")
def adaptive_max_pool(call: Call) -> Expr:
    return _by_size(call, _output_size(call), "max")


def _output_size(call: Call) -> tuple[int, ...] | None:
    sizes, rank = call.ints("output_size"), _rank(call)
    if not sizes:
        return None
    if len(sizes) not in (1, rank):
        raise Declined(f"attribute output_size has {len(sizes)} numbers for {rank} axes")
    return sizes * rank if len(sizes) == 1 else sizes


def _by_size(call: Call, sizes: tuple[int, ...] | None, reduction: str) -> Expr:
    """Pool so that the result has `sizes`; None for the input's. Window i of n over an axis of s elements is
    [i s / n, (i + 1) s / n), its ends rounded down and up. Means of integers are rounded towards zero."""
    rank = _rank(call)
    plain, source = f"NC{SPATIAL[rank]}", call.text("layout", f"NC{SPATIAL[rank]}")
    x = relayout(call, call.x(0), source, plain)
    image = shape_of(x)[2:]
    sizes = image if sizes is None else sizes
    floats = "int" not in dtype_of(x)
    if set(sizes) == {1} and (floats or reduction == "max"):
        result = (relax.op.max if reduction == "max" else relax.op.mean)(x, list(range(2, 2 + rank)), True)
    elif floats and all(have % want == 0 for have, want in zip(image, sizes, strict=True)):
        kernel = tuple(have // want for have, want in zip(image, sizes, strict=True))
        result = (_MAX if reduction == "max" else _AVERAGE)[rank](x, kernel, kernel)
    else:
        result = _over_windows(call, x, sizes, reduction)
    return relayout(call, call.emit(result), plain, call.text("out_layout", "") or source)


def _over_windows(call: Call, x: Expr, sizes: tuple[int, ...], reduction: str) -> Expr:
    """Reduce axis by axis, each window a slice of its own; means divide the sums last."""
    function = relax.op.max if reduction == "max" else relax.op.sum
    counts = np.ones((), np.int64)
    for axis, (have, want) in enumerate(zip(shape_of(x)[2:], sizes, strict=True), 2):
        bounds = [(index * have // want, -(-(index + 1) * have // want)) for index in range(want)]
        slices = [relax.op.strided_slice(x, [axis], [start], [end]) for start, end in bounds] if want > 1 else [x]
        parts = [function(part, [axis], True) for part in slices]
        x = call.emit(relax.op.concat(parts, axis) if want > 1 else parts[0])
        counts = np.multiply.outer(counts, [end - start for start, end in bounds])
    return x if reduction == "max" else relax.op.divide(x, constant(counts.astype(numpy_dtype(dtype_of(x)))))
