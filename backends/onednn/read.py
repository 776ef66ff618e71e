"""Tables of the Relax operators that oneDNN runs: what begins a chain, and what may follow in one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from tvm import relax
from tvm.ir import GenericConst

from backends.onednn.chain import CallChain, ChainCall, array_of, numbers_of, shape_of
from backends.onednn.operation import (
    BIAS,
    SCALE,
    SHIFT,
    SRC,
    WEIGHTS,
    Operation,
    PostOp,
    PrimitiveOperand,
    post_op_argument,
)
from fusion.bindings import call_name, data_of, operand
from fusion.declined import Declined


@dataclass(frozen=True, eq=False)
class First:
    """The first call of a chain as a row of the table sees it.

    Attributes:
        chain: The chain.
        call: The call.
    """

    chain: CallChain
    call: relax.Call

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the result."""
        return shape_of(self.call)

    def operand(self, name: str) -> relax.Expr:
        """Return an operand by its name."""
        return operand(self.call, name)

    def argument(
        self, which: int, value: relax.Expr, shape: tuple[int, ...], *, plain: bool = True
    ) -> PrimitiveOperand:
        """Return the argument `which` of a primitive, which sees `value` under a shape."""
        return PrimitiveOperand(which, shape, self.chain.source(value), plain)

    def require(self, holds: bool, why: str) -> None:
        """Decline the call unless something holds."""
        if not holds:
            raise Declined(why)


def _matmul(first: First) -> Operation:
    """Batches of rows by one matrix are a product of matrices."""
    left, right = first.call.args
    rows, weights = shape_of(left), shape_of(right)
    first.require(len(rows) > 1 and len(weights) > 1, "one operand is a vector")
    result = first.shape
    if len(weights) == 2:
        rows, shape = _rows(rows), _rows(result)
    else:
        rank, shape = len(result), result
        rows, weights = (1,) * (rank - len(rows)) + rows, (1,) * (rank - len(weights)) + weights
    operands = (
        first.argument(SRC, left, rows),
        first.argument(WEIGHTS, right, weights, plain=not isinstance(right, GenericConst)),
    )
    return Operation("matmul", operands, shape, result)


def _rows(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a tensor as a matrix, whose columns are its last axis."""
    return prod(shape[:-1]), shape[-1]


def _convolution(first: First) -> Operation:
    data, weight, attrs = first.operand("data"), first.operand("weight"), first.call.attrs
    first.require(isinstance(weight, GenericConst), "its weights are no constant")
    kept = attrs.data_layout == "NCHW" and attrs.kernel_layout == "OIHW" and attrs.out_layout in ("", "NCHW")
    first.require(kept, "its tensors lie in other orders")
    groups, shape = int(attrs.groups), shape_of(weight)
    if groups > 1:
        shape = (groups, shape[0] // groups, *shape[1:])
    operands = (
        first.argument(SRC, data, shape_of(data), plain=False),
        first.argument(WEIGHTS, weight, shape, plain=False),
    )
    sizes = {**_window(attrs), "strides": numbers_of(attrs.strides)}
    return Operation(
        "convolution", operands, first.shape, first.shape, plain=False, sizes=sizes, algorithm="convolution_direct"
    )


def _window(attrs: relax.Attrs) -> dict[str, tuple[int, ...]]:
    """Return what convolutions and pools say of their windows; oneDNN counts the elements that dilation leaves out."""
    padding = numbers_of(attrs.padding)
    half = len(padding) // 2
    dilation = tuple(step - 1 for step in numbers_of(attrs.dilation))
    return {"dilation": dilation, "begin": padding[:half], "end": padding[half:]}


def _average_pool(first: First) -> Operation:
    (data,), attrs = first.call.args, first.call.attrs
    first.require(attrs.layout == "NCHW" and attrs.out_layout in ("", "NCHW"), "its tensors lie in other orders")
    first.require(not attrs.ceil_mode, "its last windows may begin or end outside")
    algorithm = f"pooling_avg_{'include' if attrs.count_include_pad else 'exclude'}_padding"
    sizes = {**_window(attrs), "strides": numbers_of(attrs.strides), "kernel": numbers_of(attrs.pool_size)}
    source = first.argument(SRC, data, shape_of(data))
    return Operation("pooling", (source,), first.shape, first.shape, sizes=sizes, algorithm=algorithm)


def _softmax(first: First) -> Operation:
    (data,), shape = first.call.args, first.shape
    numbers = {"axis": float(int(first.call.attrs.axis) % len(shape))}
    source = first.argument(SRC, data, shape)
    return Operation("softmax", (source,), shape, shape, numbers=numbers, algorithm="softmax_accurate")


def _layer_norm(first: First) -> Operation:
    attrs, shape = first.call.attrs, first.shape
    axes = {axis % len(shape) for axis in numbers_of(attrs.axes)}
    first.require(axes == {len(shape) - 1}, "it normalizes other axes than the last")
    first.require(bool(attrs.center) and bool(attrs.scale), "it has no scale or no shift")
    rows = _rows(shape)
    operands = (
        first.argument(SRC, first.operand("data"), rows),
        first.argument(SCALE, first.operand("gamma"), shape[-1:]),
        first.argument(SHIFT, first.operand("beta"), shape[-1:]),
    )
    numbers = {"epsilon": float(attrs.epsilon)}
    return Operation("layer_normalization", operands, rows, shape, numbers=numbers)


def _eltwise(first: First) -> Operation:
    made, shape = ELTWISE[call_name(first.call)](first.call), (prod(first.shape),)
    numbers = {"alpha": made.alpha, "beta": made.beta}
    source = first.argument(SRC, data_of(first.call), shape)
    return Operation("eltwise", (source,), shape, first.shape, numbers=numbers, algorithm=made.algorithm)


def _unary(algorithm: str, alpha: float = 0.0) -> Callable[[relax.Call], PostOp]:
    return lambda call: PostOp(algorithm, alpha)


ELTWISE: Mapping[str, Callable[[relax.Call], PostOp]] = {
    "abs": _unary("eltwise_abs"),
    "nn.gelu": _unary("eltwise_gelu_erf"),
    "nn.gelu_tanh": _unary("eltwise_gelu_tanh"),
    "nn.leakyrelu": lambda call: PostOp("eltwise_relu", float(call.attrs.alpha)),
    "nn.relu": _unary("eltwise_elu"),  # oneDNN's own relu makes 0 of NaN
    "nn.silu": _unary("eltwise_swish", 1.0),
    "sigmoid": _unary("eltwise_logistic"),
    "sqrt": _unary("eltwise_sqrt"),
    "tanh": _unary("eltwise_tanh"),
}
"""Elementwise operators of one operand, which stand alone or follow a product. Not among them: `clip` and `exp`, which
make a bound and infinity of NaN."""
PRODUCTS: Mapping[str, Callable[[First], Operation]] = {"matmul": _matmul, "nn.conv2d": _convolution}
"""What others may follow."""
ALONE: Mapping[str, Callable[[First], Operation]] = {
    "nn.avg_pool2d": _average_pool,
    "nn.layer_norm": _layer_norm,
    "nn.softmax": _softmax,
    **dict.fromkeys(ELTWISE, _eltwise),
}
"""What nothing may follow. Not among them: `log_softmax`, which is off by 1e-6, and `max_pool2d`, which loses NaN and
makes a number of -inf."""


def read_operation(chain: CallChain) -> tuple[Operation, dict[int, np.ndarray]]:
    """Return what oneDNN computes for a chain, and its constants by the argument that each is.

    Raises:
        Declined: It computes nothing for it.
    """
    first, *others = chain.links
    operation = {**PRODUCTS, **ALONE}[first.operator](First(chain, first.call))
    values = {each.argument: value for each, value in _pairs(operation, first)}
    for link in others:
        operation = _follow(chain, operation, link, values)
    constants = {at: array_of(value) for at, value in values.items() if isinstance(value, GenericConst)}
    return operation, constants


def _pairs(operation: Operation, first: ChainCall) -> list[tuple[PrimitiveOperand, relax.Expr]]:
    return list(zip(operation.operands, first.others, strict=True))


def _follow(chain: CallChain, operation: Operation, link: ChainCall, values: dict[int, relax.Expr]) -> Operation:
    """Return `operation` with `link` behind it, whose operand joins `values`."""
    if link.operator in ELTWISE:
        return replace(operation, post_ops=(*operation.post_ops, ELTWISE[link.operator](link.call)))
    (value,) = link.others
    if shape_of(link.call) != operation.result:
        raise Declined("what is added has more axes or elements than the product")
    shape = _seen_with(operation, shape_of(value))
    bias = _bias_shape(operation, shape)
    if bias and not operation.post_ops and BIAS not in values:
        values[BIAS] = value
        return replace(operation, operands=(*operation.operands, PrimitiveOperand(BIAS, bias, chain.source(value))))
    argument = post_op_argument(len(operation.post_ops))
    values[argument] = value
    plain = operation.plain or shape != operation.shape
    added = PostOp("binary_add", operand=PrimitiveOperand(argument, shape, chain.source(value), plain))
    return replace(operation, post_ops=(*operation.post_ops, added))


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
