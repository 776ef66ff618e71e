"""Tables of the Relax operators that oneDNN runs: what a primitive computes, and what may follow one in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np
from tvm import relax, tirx
from tvm.ir import GenericConst

from backends.onednn.call import Described, Read, ReadCall, array_of, extents_of, shape_of
from backends.onednn.operation import (
    BIAS,
    CONSTANT,
    FREE,
    GIVEN,
    PLAIN,
    SCALE,
    SHIFT,
    SRC,
    SRC_1,
    WEIGHTS,
    Operation,
    PostOp,
    PrimitiveOperand,
    post_op_argument,
)
from fusion.bindings import call_name, data_of
from fusion.declined import Declined
from fusion.shapes import as_ints


def _matmul(read: ReadCall) -> Described:
    """Batches of rows by one matrix are a product of matrices."""
    left, right = read.call.args
    rows, weights = shape_of(left), shape_of(right)
    read.require(len(rows) > 1 and len(weights) > 1, "one operand is a vector")
    result = read.shape
    if len(weights) == 2:
        rows, shape = _rows(rows), _rows(result)
    else:
        rank, shape = len(result), result
        rows, weights = (1,) * (rank - len(rows)) + rows, (1,) * (rank - len(weights)) + weights
    order = FREE if isinstance(right, GenericConst) else PLAIN
    operands = read.argument(SRC, left, rows), read.argument(WEIGHTS, right, weights, order)
    return read.described(Operation("matmul", operands, shape, result), [left, right])


def _rows(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a tensor as a matrix, whose columns are its last axis."""
    return prod(shape[:-1]), shape[-1]


def _convolution(read: ReadCall) -> Described:
    data, weight, attrs = read.operand("data"), read.operand("weight"), read.call.attrs
    read.require(isinstance(weight, GenericConst), "its weights are no constant")
    kept = attrs.data_layout == "NCHW" and attrs.kernel_layout == "OIHW" and attrs.out_layout in ("", "NCHW")
    read.require(kept, "its tensors lie in other orders")
    groups, shape = int(attrs.groups), shape_of(weight)
    if groups > 1:
        shape = (groups, shape[0] // groups, *shape[1:])
    operands = read.argument(SRC, data, shape_of(data), FREE), read.argument(WEIGHTS, weight, shape, FREE)
    sizes = {**_window(attrs), "strides": as_ints(attrs.strides)}
    made = Operation("convolution", operands, read.shape, read.shape, FREE, sizes=sizes, algorithm="convolution_direct")
    return read.described(made, [data, weight])


def _window(attrs: relax.Attrs) -> dict[str, tuple[int, ...]]:
    """Return what convolutions and pools say of their windows; oneDNN counts the elements that dilation leaves out."""
    padding = as_ints(attrs.padding)
    half = len(padding) // 2
    dilation = tuple(step - 1 for step in as_ints(attrs.dilation))
    return {"dilation": dilation, "begin": padding[:half], "end": padding[half:]}


def _average_pool(read: ReadCall) -> Described:
    (data,), attrs = read.call.args, read.call.attrs
    read.require(attrs.layout == "NCHW" and attrs.out_layout in ("", "NCHW"), "its tensors lie in other orders")
    read.require(not attrs.ceil_mode, "its last windows may begin or end outside")
    algorithm = f"pooling_avg_{'include' if attrs.count_include_pad else 'exclude'}_padding"
    sizes = {**_window(attrs), "strides": as_ints(attrs.strides), "kernel": as_ints(attrs.pool_size)}
    source = read.argument(SRC, data, shape_of(data), GIVEN)
    made = Operation("pooling", (source,), read.shape, read.shape, FREE, sizes=sizes, algorithm=algorithm)
    return read.described(made, [data])


def _softmax(read: ReadCall) -> Described:
    (data,), shape = read.call.args, read.shape
    numbers = {"axis": float(int(read.call.attrs.axis) % len(shape))}
    source = read.argument(SRC, data, shape)
    made = Operation("softmax", (source,), shape, shape, numbers=numbers, algorithm="softmax_accurate")
    return read.described(made, [data])


def _layer_norm(read: ReadCall) -> Described:
    attrs, shape = read.call.attrs, read.shape
    axes = {axis % len(shape) for axis in as_ints(attrs.axes)}
    read.require(axes == {len(shape) - 1}, "it normalizes other axes than the last")
    read.require(bool(attrs.center) and bool(attrs.scale), "it has no scale or no shift")
    rows = _rows(shape)
    values = [read.operand(name) for name in ("data", "gamma", "beta")]
    shapes = (SRC, rows), (SCALE, shape[-1:]), (SHIFT, shape[-1:])
    operands = tuple(read.argument(which, value, of) for (which, of), value in zip(shapes, values, strict=True))
    numbers = {"epsilon": float(attrs.epsilon)}
    return read.described(Operation("layer_normalization", operands, rows, shape, numbers=numbers), values)


def _eltwise(read: ReadCall) -> Described:
    made, data = ELTWISE[call_name(read.call)](read.call), data_of(read.call)
    numbers = {"alpha": made.alpha, "beta": made.beta}
    source = read.argument(SRC, data, read.shape, GIVEN)
    result = read.shape
    operation = Operation("eltwise", (source,), result, result, order=FREE, numbers=numbers, algorithm=made.algorithm)
    return read.described(operation, [data])


def _binary(algorithm: str, *, commutes: bool = False) -> Read:
    """Return what reads an operator of two operands, the first of which is as large as the result."""

    def read_binary(read: ReadCall) -> Described:
        first, second = read.call.args
        shape = read.shape
        if commutes and (extents_of(first) != shape or isinstance(first, GenericConst)):
            first, second = second, first
        full = isinstance(first, relax.Var) and extents_of(first) == shape
        read.require(full, "its first operand is a constant, or smaller than the result")
        other = extents_of(second)
        operands = (
            read.argument(SRC, first, shape, GIVEN),
            read.argument(SRC_1, second, (1,) * (len(shape) - len(other)) + other, GIVEN),
        )
        return read.described(Operation("binary", operands, shape, shape, FREE, algorithm=algorithm), [first, second])

    return read_binary


def _unary(algorithm: str, alpha: float = 0.0) -> Callable[[relax.Call], PostOp]:
    return lambda call: PostOp(algorithm, alpha)


def _clip(call: relax.Call) -> Sequence[tuple[str, float]]:
    low, high = call.args[1:]
    if not isinstance(low, tirx.FloatImm) or not isinstance(high, tirx.FloatImm):
        raise Declined("only a call knows its bounds")
    return ("binary_max", float(low.value)), ("binary_min", float(high.value))


ELTWISE: Mapping[str, Callable[[relax.Call], PostOp]] = {
    "abs": _unary("eltwise_abs"),
    "nn.gelu": _unary("eltwise_gelu_erf"),
    "nn.gelu_tanh": _unary("eltwise_gelu_tanh"),
    "nn.leakyrelu": lambda call: PostOp("eltwise_relu", float(call.attrs.alpha)),
    "nn.silu": _unary("eltwise_swish", 1.0),
    "sigmoid": _unary("eltwise_logistic"),
    "sqrt": _unary("eltwise_sqrt"),
    "tanh": _unary("eltwise_tanh"),
}
"""Elementwise operators of one operand, which stand alone or follow a product. Not among them: `exp`, which makes
infinity of NaN."""
BOUNDS: Mapping[str, Callable[[relax.Call], Sequence[tuple[str, float]]]] = {
    "clip": _clip,
    "nn.relu": lambda call: (("binary_max", 0.0),),
}
"""What keeps values between bounds, as passes over them: oneDNN's own relu and clip make a bound of NaN."""
PRODUCTS: Mapping[str, Read] = {"matmul": _matmul, "nn.conv2d": _convolution}
"""What others may follow."""
ALONE: Mapping[str, Read] = {
    "add": _binary("binary_add", commutes=True),
    "divide": _binary("binary_div"),
    "multiply": _binary("binary_mul", commutes=True),
    "nn.avg_pool2d": _average_pool,
    "nn.layer_norm": _layer_norm,
    "nn.softmax": _softmax,
    "subtract": _binary("binary_sub"),
    **dict.fromkeys(ELTWISE, _eltwise),
}
"""What nothing may follow. Not among them: `log_softmax`, which is off by 1e-6, `max_pool2d`, which loses NaN and makes
a number of -inf, and `maximum` and `minimum`, which lose NaN of one operand."""


def read_call(read: ReadCall) -> list[Described]:
    """Return what oneDNN computes for a call: operations, each of which but the first reads the one before.

    Raises:
        Declined: It computes nothing for it.
    """
    name = call_name(read.call)
    if name in BOUNDS:
        return _bounded(read, BOUNDS[name](read.call))
    row = {**PRODUCTS, **ALONE}.get(name)
    if row is None:
        raise Declined("no primitive computes it as we do")
    return [row(read)]


def _bounded(read: ReadCall, bounds: Sequence[tuple[str, float]]) -> list[Described]:
    """Return a pass for each bound: of the larger of a value and the bound, again the larger beside the value, which
    is NaN where that is, as the second of two is the result where one is NaN."""
    data, shape = data_of(read.call), read.shape
    source = read.argument(SRC, data, shape, GIVEN).source
    read.require(source != CONSTANT, "it is a constant")
    found = []
    for algorithm, bound in bounds:
        scalar = (1,) * len(shape)
        operands = PrimitiveOperand(SRC, shape, source, GIVEN), PrimitiveOperand(SRC_1, scalar, CONSTANT)
        again = PostOp(algorithm, operand=PrimitiveOperand(post_op_argument(0), shape, source, GIVEN))
        made = Operation("binary", operands, shape, shape, FREE, algorithm=algorithm, post_ops=(again,))
        found.append(Described(made, {SRC_1: np.full(scalar, bound, np.float32)}))
        source = read.next_number + len(found) - 1
    return found


def follow(described: Described, read: ReadCall, result: relax.Expr) -> Described:
    """Return a product with a call behind it, which reads its `result`.

    Raises:
        Declined: The call cannot follow in one primitive.
    """
    operation, name = described.operation, call_name(read.call)
    if name in ELTWISE:
        return replace(
            described, operation=replace(operation, post_ops=(*operation.post_ops, ELTWISE[name](read.call)))
        )
    others = [each for each in read.call.args if not each.same_as(result)]
    if name != "add" or len(others) != 1 or not read.is_known(others[0]):
        raise Declined("it is not added to what was made before")
    (value,) = others
    if shape_of(read.call) != operation.result:
        raise Declined("what is added has more axes or elements than the product")
    shape = _seen_with(operation, extents_of(value))
    bias = _bias_shape(operation, shape)
    constants = dict(described.constants)
    if bias and not operation.post_ops and BIAS not in operation.all_operands():
        added = read.argument(BIAS, value, bias)
        followed = replace(operation, operands=(*operation.operands, added))
    else:
        order = FREE if operation.order == FREE and shape == operation.shape else PLAIN
        added = read.argument(post_op_argument(len(operation.post_ops)), value, shape, order)
        followed = replace(operation, post_ops=(*operation.post_ops, PostOp("binary_add", operand=added)))
    if added.source == CONSTANT:
        constants[added.argument] = array_of(value)
    return Described(followed, constants)


def _seen_with(operation: Operation, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of what is added as the primitive has to see it beside its result."""
    full = (1,) * (len(operation.result) - len(shape)) + shape
    if operation.shape == operation.result:
        return full
    if full == operation.result:
        return operation.shape
    if prod(full[:-1]) == 1:
        return 1, full[-1]
    raise Declined("what is added is the same for some of the rows")


def _bias_shape(operation: Operation, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of what is added as a bias; empty where it is none."""
    axis = 1 if operation.primitive == "convolution" else len(shape) - 1
    if shape[axis] != operation.shape[axis] or prod(shape) != shape[axis]:
        return ()
    return shape[axis : axis + 1] if operation.primitive == "convolution" else shape
