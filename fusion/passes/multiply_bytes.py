"""Multiply quantised tensors as the bytes that they are, where the target has instructions for that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import starmap
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax
from tvm.ir import GenericConst

from fusion.bindings import Bindings, call_name, data_of
from fusion.constants import constant
from fusion.declined import Declined
from fusion.passes.numpy_operators import OPERATORS, centred
from fusion.passes.rebuild import rebuild_main, with_attrs
from fusion.shapes import known_shape
from fusion.tensors import as_numpy

Array = npt.NDArray[Any]

_BYTES = ("uint8", "int8")
_PRODUCTS = ("matmul", "nn.conv2d")
_MOVES = ("reshape", "permute_dims", "take")
"""Operators that move elements of their first operand."""
_CENTRED = "int16"
"""In what bytes are multiplied without their zero point, which is a border of 0, too."""
_SIGN = 128
"""What an int8 is larger by as a uint8."""
_LEAST = 2.0**-100
"""Of scales: 512 times one that is larger is neither 0 nor infinite, nor is it with one of its reciprocal."""


@dataclass(frozen=True)
class MultiplyBytes:
    """`matmul(dequantize(x, s, z), dequantize(w, t, 0))`  ->  `s t float32(matmul(x, w) - z sum(w))`, by constant `w`,
    or  ->  `s t float32(matmul(x - z, w))`

    Bytes x, of uint8, times int8 w are summed in int32, exactly; x of int8 become uint8, 128 larger. Where the target
    has no such products, or no int8 holds w, x - z and w are of int16. So are products in int32 of bytes without their
    zero points, as MatMulInteger makes them. What is only moved between two equal quantisations is moved as bytes.

    Attributes:
        dtypes: Those of both operands by which the target has products (`KernelCompiler.byte_products`).
    """

    dtypes: tuple[tuple[str, str], ...]
    name: str = "multiply_bytes"

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        values = Bindings.of(mod["main"]).values.items()
        return rebuild_main(mod, _Products(self.dtypes).visit) if any(starmap(_may_be_of_bytes, values)) else mod


def _may_be_of_bytes(var: relax.Var, value: relax.Expr) -> bool:
    """Return whether a binding makes bytes or numbers of them, or multiplies integers; without one there is nothing to
    do, and to rebuild a network of 60 convolutions takes 40 ms."""
    name = call_name(value)
    return name in ("quantize", "dequantize") or (name in _PRODUCTS and str(var.ty.dtype.dtype) == "int32")


@dataclass(frozen=True)
class _Rows:
    """A left operand.

    Attributes:
        data: Its bytes.
        zero: What they are where it is 0, an int32.
        scale: By what their distance from that is multiplied, a float32; None in products of integers.
    """

    data: relax.Expr
    zero: relax.Expr
    scale: relax.Expr | None


@dataclass(frozen=True)
class _Matrix:
    """A right operand, which is known.

    Attributes:
        data: Its elements without their zero point, in the dtype of the target's products that holds them.
        scale: By what its columns are multiplied, in float32; None in products of integers.
    """

    data: Array
    scale: Array | None


@dataclass
class _Products:
    """The visit of a function.

    Attributes:
        dtypes: As in `MultiplyBytes`.
        made: What left operands are made of bytes, by these and their zero point, in uint8 or int16.
    """

    dtypes: tuple[tuple[str, str], ...]
    made: dict[tuple[relax.Expr, relax.Expr | int, str], relax.Expr] = field(default_factory=dict)

    def visit(self, builder: relax.BlockBuilder, var: relax.Var, value: relax.Expr) -> relax.Expr:
        """Return `value`, of bytes where it is a product of them: that has the name then, so that reports say where it
        is multiplied."""
        try:
            match call_name(value):
                case "matmul":
                    return builder.emit(self._product(builder, var, value))
                case "nn.conv2d":
                    return builder.emit(self._convolution(builder, var, value))
                case "quantize":
                    return _moved(builder, value)
        except Declined:
            pass
        return value

    def _product(self, builder: relax.BlockBuilder, var: relax.Var, call: relax.Call) -> relax.Expr:
        left, right = call.args
        dtype = str(var.ty.dtype.dtype)
        if dtype not in ("float32", "int32") or len(left.ty.shape) < 2 or len(right.ty.shape) != 2:
            raise Declined("not rows by a matrix")
        matrix, rows = self._held(_matrix(builder, right, dtype)), _rows(builder, left, dtype)
        _check_sums(matrix.data, 0, dtype)
        data, zero = self._operand(builder, rows, matrix)
        total = builder.emit(relax.op.matmul(data, constant(matrix.data), out_dtype="int32"), var.name)
        total = _less(builder, total, zero, matrix.data.sum(0, dtype=np.int32))
        return _scaled(builder, total, rows.scale, matrix.scale)

    def _convolution(self, builder: relax.BlockBuilder, var: relax.Var, call: relax.Call) -> relax.Expr:
        image, weight = call.args
        attrs, dtype = call.attrs, str(var.ty.dtype.dtype)
        if dtype not in ("float32", "int32") or int(attrs.groups) > 1 or attrs.data_layout != "NCHW":
            raise Declined("not a convolution of all channels")
        rows, padding = _rows(builder, image, dtype), [int(extent) for extent in attrs.padding]
        is_zero_lost = any(padding) and not isinstance(rows.zero, GenericConst)
        weights = self._held(_weights(builder, weight, dtype), centred=is_zero_lost)
        _check_sums(weights.data, (1, 2, 3), dtype)
        data, zero = self._operand(builder, rows, weights)
        if zero is not None and any(padding):
            data, padding = _padded(builder, data, zero, padding), [0, 0, 0, 0]
        call = with_attrs(call, [data, constant(weights.data)], padding=padding, out_dtype="int32")
        sums = weights.data.sum((1, 2, 3), dtype=np.int32).reshape(-1, 1, 1)
        total = _less(builder, builder.emit(call, var.name), zero, sums)
        scales = None if weights.scale is None else weights.scale.reshape(-1, 1, 1)
        return _scaled(builder, total, rows.scale, scales)

    def _held(self, matrix: _Matrix, *, centred: bool = False) -> _Matrix:
        """Return a right operand in the first dtype that holds it, of those whose left operand is `centred`, if it must
        be."""
        for left, dtype in self.dtypes:
            limits = np.iinfo(dtype)
            if centred and left != _CENTRED:
                continue
            if not matrix.data.size or limits.min <= matrix.data.min() <= matrix.data.max() <= limits.max:
                return replace(matrix, data=matrix.data.astype(dtype))
        raise Declined("weights that are no bytes")

    def _operand(
        self, builder: relax.BlockBuilder, rows: _Rows, matrix: _Matrix
    ) -> tuple[relax.Expr, relax.Expr | None]:
        """Return a left operand in the dtype by which `matrix` is multiplied, and its zero point; None where it has
        none left."""
        dtype = next(left for left, right in self.dtypes if right == str(matrix.data.dtype))
        if dtype == _CENTRED:
            _check_byte(builder, rows.zero)
            return self._once(builder, rows, dtype, _centred), None
        if _dtype(rows.data) == dtype:
            return rows.data, rows.zero
        data = self._once(builder, rows, dtype, _unsigned)
        if isinstance(rows.zero, GenericConst):
            return data, constant(as_numpy(rows.zero.value) + np.int32(_SIGN))
        return data, builder.emit(relax.op.add(rows.zero, relax.const(_SIGN, "int32")))

    def _once(
        self, builder: relax.BlockBuilder, rows: _Rows, dtype: str, make: Callable[..., relax.Expr]
    ) -> relax.Expr:
        """Return what `make` makes of a left operand, the same for all products of it."""
        key = rows.data, _byte_of(builder, rows.zero), dtype
        if key not in self.made:
            self.made[key] = builder.emit(make(builder, rows))
        return self.made[key]


def _unsigned(builder: relax.BlockBuilder, rows: _Rows) -> relax.Expr:
    """Return bytes of int8 as uint8, 128 larger."""
    flipped = builder.emit(relax.op.bitwise_xor(rows.data, relax.const(-_SIGN, "int8")))
    return relax.op.astype(flipped, "uint8")


def _centred(builder: relax.BlockBuilder, rows: _Rows) -> relax.Expr:
    """Return bytes without their zero point, in int16."""
    wide = relax.op.astype(rows.data, "int16")
    if isinstance(rows.zero, GenericConst):
        zero = as_numpy(rows.zero.value).astype("int16")
        return relax.op.subtract(builder.emit(wide), constant(zero)) if zero.any() else wide
    return relax.op.subtract(builder.emit(wide), builder.emit(relax.op.astype(rows.zero, "int16")))


def _byte_of(builder: relax.BlockBuilder, zero: relax.Expr) -> relax.Expr | int:
    """Return the number that a zero point is, or what was widened to it."""
    if isinstance(zero, GenericConst):
        return int(as_numpy(zero.value).item())
    made = _made(builder, zero)
    return data_of(made) if call_name(made) == "astype" else zero


def _check_byte(builder: relax.BlockBuilder, zero: relax.Expr) -> None:
    """Raise where a zero point may be anything but a byte."""
    byte = _byte_of(builder, zero)
    limits = np.iinfo("int8").min, np.iinfo("uint8").max
    if not (limits[0] <= byte <= limits[1] if isinstance(byte, int) else _dtype(byte) in _BYTES):
        raise Declined("a zero point that may be no byte")


def _rows(builder: relax.BlockBuilder, operand: relax.Expr, dtype: str) -> _Rows:
    """Return the left operand of a product in `dtype`, of one zero point and one scale."""
    value = _made(builder, operand)
    if dtype == "float32" and call_name(value) == "dequantize":
        data, scale, zero = value.args
        found = _Rows(data, _as_int32(builder, zero), scale)
    elif dtype == "int32" and call_name(value) == "subtract":
        data, zero = value.args
        found = _Rows(_narrow(builder, data), zero, None)
    else:
        found = _Rows(_narrow(builder, operand), constant(np.zeros((), "int32")), None)
    if _dtype(found.data) not in _BYTES:
        raise Declined("not bytes")
    if not all(known_shape(each) in ((), (1,)) for each in (found.zero, found.scale) if each is not None):
        raise Declined("several scales or zero points")
    return found


def _matrix(builder: relax.BlockBuilder, operand: relax.Expr, dtype: str) -> _Matrix:
    """Return the right operand of a product in `dtype`."""
    value = _made(builder, operand)
    if dtype == "int32":
        return _Matrix(_known(builder, operand), None)
    turned = call_name(value) == "permute_dims"
    source = _made(builder, data_of(value)) if turned else value
    if call_name(source) != "dequantize" or _dtype(source) != dtype:
        raise Declined("not bytes")
    values, scale = centred(source, [_known(builder, arg) for arg in source.args])
    if turned:
        values, scale = (OPERATORS["permute_dims"](value, [each]) for each in (values, scale))
    if scale.shape[0] > 1:
        raise Declined("scales of rows")
    return _Matrix(values, scale.reshape(-1).astype("float32"))


def _weights(builder: relax.BlockBuilder, operand: relax.Expr, dtype: str) -> _Matrix:
    """Return the weights of a convolution in `dtype`, output channels first."""
    if dtype == "int32":
        return _Matrix(_known(builder, operand), None)
    value = _made(builder, operand)
    if call_name(value) != "dequantize" or _dtype(value) != dtype:
        raise Declined("not bytes")
    values, scale = centred(value, [_known(builder, arg) for arg in value.args])
    if any(extent > 1 for extent in scale.shape[1:]):
        raise Declined("scales of input channels")
    return _Matrix(values, scale.reshape(-1).astype("float32"))


def _padded(builder: relax.BlockBuilder, data: relax.Expr, zero: relax.Expr, padding: list[int]) -> relax.Expr:
    """Return images with a border of what is zero."""
    assert isinstance(zero, GenericConst), "others are centred"
    top, left, bottom, right = padding
    value = float(as_numpy(zero.value).item())
    return builder.emit(relax.op.nn.pad(data, [0, 0, 0, 0, top, bottom, left, right], "constant", value))


def _moved(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Return what `quantize` makes of moved elements that were dequantised by the same numbers: (n s) / s, rounded, is
    n, as n has 9 bits at the most."""
    data, *parameters = call.args
    moves = []
    while call_name(value := _made(builder, data)) in _MOVES:
        data, *_ = value.args
        moves.append(value)
    if call_name(value) != "dequantize" or not moves or _dtype(data_of(value)) != str(call.attrs.out_dtype):
        raise Declined("not moved between two quantisations")
    if not all(map(_is_same_number, parameters, value.args[1:])) or not _is_scale(parameters[0]):
        raise Declined("other numbers")
    data = data_of(value)
    for move in reversed(moves):
        data = builder.emit(with_attrs(move, [data, *move.args[1:]]))
    return data


def _is_scale(value: relax.Expr) -> bool:
    """Return whether no small integer times this number is lost."""
    return not isinstance(value, GenericConst) or _LEAST < abs(float(as_numpy(value.value).item())) < 1 / _LEAST


def _is_same_number(one: relax.Expr, other: relax.Expr) -> bool:
    """Return whether both are the same known number."""
    if one.same_as(other):
        return known_shape(one) == ()
    values = [as_numpy(each.value) for each in (one, other) if isinstance(each, GenericConst)]
    return len(values) == 2 and all(each.size == 1 for each in values) and bool(values[0].item() == values[1].item())


def _made(builder: relax.BlockBuilder, operand: relax.Expr) -> Any:
    """Return what makes `operand`; itself where it is no variable, None where it is a parameter."""
    return builder.lookup_binding(operand) if isinstance(operand, relax.Var) else operand


def _narrow(builder: relax.BlockBuilder, operand: relax.Expr) -> relax.Expr:
    """Return the bytes that `operand` is, widened."""
    value = _made(builder, operand)
    if call_name(value) != "astype" or _dtype(operand) != "int32":
        raise Declined("not bytes")
    return data_of(value)


def _known(builder: relax.BlockBuilder, operand: relax.Expr) -> Array:
    """Return the elements of a known tensor."""
    value = _made(builder, operand)
    if isinstance(value, GenericConst):
        return as_numpy(value.value)
    if call_name(value) not in ("astype", "subtract", "permute_dims", "reshape"):
        raise Declined("not known")
    tensors = [arg for arg in value.args if not isinstance(arg, relax.ShapeExpr)]
    made = OPERATORS[call_name(value)](value, [_known(builder, arg) for arg in tensors])
    result = operand.ty if isinstance(operand, relax.Var) else builder.normalize(value).ty
    return made.astype(str(result.dtype.dtype)).reshape([int(extent) for extent in result.shape])


def _check_sums(weights: Array, summed: int | tuple[int, ...], dtype: str) -> None:
    """Raise where a product in float32, of any uint8 by `weights`, is a sum over the axes `summed` that no int32 holds;
    one in int32 wraps, as its operator says."""
    sums = np.abs(weights, dtype="int64").sum(summed)
    if dtype == "float32" and (sums * np.iinfo("uint8").max > np.iinfo("int32").max).any():
        raise Declined("sums that no int32 holds")


def _as_int32(builder: relax.BlockBuilder, zero: relax.Expr) -> relax.Expr:
    if isinstance(zero, GenericConst):
        return constant(as_numpy(zero.value).astype("int32"))
    return builder.emit(relax.op.astype(zero, "int32"))


def _less(builder: relax.BlockBuilder, total: relax.Expr, zero: relax.Expr | None, sums: Array) -> relax.Expr:
    """Return `total` without what its rows' zero point adds to it, columns whose weights have these `sums`."""
    if zero is None:
        return total
    if isinstance(zero, GenericConst):
        added = as_numpy(zero.value).reshape(()) * sums
        return builder.emit(relax.op.subtract(total, constant(added))) if added.any() else total
    return builder.emit(relax.op.subtract(total, builder.emit(relax.op.multiply(zero, constant(sums)))))


def _scaled(
    builder: relax.BlockBuilder, total: relax.Expr, scale: relax.Expr | None, scales: Array | None
) -> relax.Expr:
    """Return sums in float32, by the scale of their rows and those of their columns; those of integers as they are."""
    if scale is None or scales is None:
        return total
    if isinstance(scale, GenericConst):
        factors = constant(as_numpy(scale.value).reshape(-1) * scales)
    else:
        factors = builder.emit(relax.op.multiply(scale, constant(scales)))
    return relax.op.multiply(builder.emit(relax.op.astype(total, "float32")), factors)


def _dtype(value: relax.Expr) -> str:
    return str(value.ty.dtype.dtype) if isinstance(value.ty, relax.TensorType) else ""
