"""Converters of PyTorch's operators where TVM's drop an argument or cannot do without one: a table for its importer."""

from __future__ import annotations

import operator
from collections.abc import Callable
from math import prod
from types import SimpleNamespace
from typing import Any

from tvm import relax
from tvm.relax import Expr, op

from fusion.frontends.torch.operands import Converter, operands

Binary = Callable[[Any, Any], Any]

_SELU = (1.6732632423543772848170429916717, 1.0507009873554804934193349852946)


def _scaled(value: Expr, factor: float, dtype: Any) -> Expr:
    return value if factor == 1 else op.multiply(value, relax.const(factor, dtype))


def _with_alpha(apply: Binary, plain: Binary, logical: Binary | None = None, turned: bool = False) -> Converter:
    """Return the converter of `apply(first, alpha * second)`; with `turned`, of `apply(second, alpha * first)`; of two
    bools, for which LLVM has no arithmetic, of `logical`."""

    def convert(node: Any, importer: Any) -> Expr:
        first, second = importer.retrieve_args(node)[:2]
        if turned:
            first, second = second, first
        if logical is not None and all(isinstance(x, Expr) and str(x.ty.dtype) == "bool" for x in (first, second)):
            return importer.block_builder.emit(logical(first, second))
        alpha = node.kwargs.get("alpha", 1)
        if isinstance(second, Expr):
            second = importer.block_builder.emit(_scaled(second, alpha, second.ty.dtype))
        else:
            second *= alpha
        return importer._binary_op(apply, plain)(SimpleNamespace(args=(first, second)))

    return convert


def _elu(node: Any, importer: Any) -> Expr:
    """scale * x, below zero scale * alpha * (e^(input_scale * x) - 1)."""
    given = operands(node, importer)
    return _exponential_below_zero(importer, given["self"], given["alpha"], given["scale"], given["input_scale"])


def _selu(node: Any, importer: Any) -> Expr:
    alpha, scale = _SELU
    return _exponential_below_zero(importer, importer.retrieve_args(node)[0], alpha, scale, 1)


def _exponential_below_zero(importer: Any, x: Expr, alpha: float, scale: float, input_scale: float) -> Expr:
    dtype = x.ty.dtype
    zero, one = (relax.const(number, dtype) for number in (0, 1))
    below = _scaled(op.subtract(op.exp(_scaled(x, input_scale, dtype)), one), alpha * scale, dtype)
    return importer.block_builder.emit(op.where(op.less(x, zero), below, _scaled(x, scale, dtype)))


def _softshrink(node: Any, importer: Any) -> Expr:
    """x less what of it lies in [-lambd, lambd]; NaN stays."""
    given = operands(node, importer)
    x, limit = given["self"], given["lambd"]
    return importer.block_builder.emit(op.subtract(x, op.clip(x, -limit, limit)))


def _rounded_quotient(node: Any, importer: Any) -> Expr:
    """self / other, rounded down, or to zero with `rounding_mode="trunc"`; integers are divided as integers."""
    given = operands(node, importer)
    x, divisor, mode = given["self"], given["other"], given.get("rounding_mode", "floor")
    dtype = (x if isinstance(x, Expr) else divisor).ty.dtype
    x, divisor = (each if isinstance(each, Expr) else relax.const(each, dtype) for each in (x, divisor))
    if mode == "floor":
        quotient = op.floor_divide(x, divisor)
    else:
        quotient = op.divide(x, divisor)
        if mode == "trunc" and "float" in str(dtype):
            quotient = op.trunc(quotient)
    return importer.block_builder.emit(quotient)


def _avg_pool(function: Callable[..., Expr], spatial: int) -> Converter:
    """The mean of windows; a divisor of its own takes the place of the number of elements."""

    def convert(node: Any, importer: Any) -> Expr:
        given = operands(node, importer)
        x, divisor = given["self"], given["divisor_override"]
        if divisor is None:
            return getattr(importer, f"_avg_pool{spatial}d")(node)
        if given["ceil_mode"]:
            raise NotImplementedError("an average pool with ceil_mode and divisor_override")
        kernel, padding = _each(given["kernel_size"], spatial), _each(given["padding"], spatial)
        strides = _each(given["stride"] or kernel, spatial)
        batched = x if len(x.ty.shape) == spatial + 2 else importer.block_builder.emit(op.expand_dims(x, 0))
        means = function(batched, kernel, strides, padding, count_include_pad=True)
        sums = importer.block_builder.emit(_scaled(means, prod(kernel) / divisor, x.ty.dtype))
        return sums if batched is x else importer.block_builder.emit(op.squeeze(sums, [0]))

    return convert


def _each(value: Any, spatial: int) -> list[int]:
    """Return one number for each spatial axis."""
    numbers = list(value) if isinstance(value, (list, tuple)) else [value]
    return numbers if len(numbers) == spatial else numbers * spatial


def _native_group_norm(node: Any, importer: Any) -> Expr:
    """x, weight, bias, the sizes of the input, groups, epsilon; without weight and bias, ones and zeros."""
    x, weight, bias, _, _, _, groups, epsilon = importer.retrieve_args(node)
    shape, dtype = [x.ty.shape[1]], x.ty.dtype
    weight = op.ones(shape, dtype) if weight is None else weight
    bias = op.zeros(shape, dtype) if bias is None else bias
    axes = list(range(2, len(x.ty.shape)))
    return importer.block_builder.emit(op.nn.group_norm(x, weight, bias, groups, 1, axes, epsilon))


CONVERTERS: dict[str, Converter] = {
    "add.Tensor": _with_alpha(op.add, operator.add, op.logical_or),
    "add.Scalar": _with_alpha(op.add, operator.add, op.logical_or),
    "add_.Tensor": _with_alpha(op.add, operator.add, op.logical_or),
    "sub.Tensor": _with_alpha(op.subtract, operator.sub),
    "sub.Scalar": _with_alpha(op.subtract, operator.sub),
    "rsub.Tensor": _with_alpha(op.subtract, operator.sub, turned=True),
    "rsub.Scalar": _with_alpha(op.subtract, operator.sub, turned=True),
    "mul.Tensor": _with_alpha(op.multiply, operator.mul, op.logical_and),
    "div.Tensor_mode": _rounded_quotient,
    "div.Scalar_mode": _rounded_quotient,
    "floor_divide.default": _rounded_quotient,
    "elu.default": _elu,
    "selu.default": _selu,
    "softshrink.default": _softshrink,
    "avg_pool2d.default": _avg_pool(op.nn.avg_pool2d, 2),
    "avg_pool3d.default": _avg_pool(op.nn.avg_pool3d, 3),
    "native_group_norm.default": _native_group_norm,
}
