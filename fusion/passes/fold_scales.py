"""Fold per-channel scales behind a convolution or matmul into its weights."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax
from tvm.ir import GenericConst

from fusion.passes.rebuild import bindings, call_name, constant, rebuild_main, static_shape

Array = npt.NDArray[Any]
# Operator -> (axis of output channels in its result, the same in its weights).
_CHANNELS = {
    "nn.conv1d": (1, 0), "nn.conv2d": (1, 0), "nn.conv3d": (1, 0), "nn.conv2d_transpose": (1, 1), "matmul": (-1, 1)
}  # fmt: skip


@dataclass(frozen=True)
class FoldScales:
    """`(conv(x, w) + b) * s`  ->  `conv(x, w * s) + b * s`; `batch_norm` is one scale and one shift.

    Applied where the scaled values have no other consumer; a `batch_norm` with nothing to fold into becomes a scale
    and a shift.
    """

    name: str = "fold_scales"

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        return rebuild_main(mod, _Fold(_uses(mod["main"])).visit)


@dataclass(frozen=True)
class _Affine:
    """A value known as `call + shift`, the shift one number per output channel."""

    call: relax.Call
    shift: Array


@dataclass
class _Fold:
    uses: Counter[relax.Var]
    affine: dict[relax.Expr, _Affine] = field(default_factory=dict)

    def visit(self, builder: relax.BlockBuilder, var: relax.Var, value: relax.Expr) -> relax.Expr:
        name = call_name(value)
        if isinstance(value, relax.TupleGetItem):
            return self._batch_norm(builder, var, value)
        if name in _CHANNELS and _has_constant_weights(value):
            return self._remember(builder.emit(value, var.name), var, _Affine(value, np.zeros(1, "float32")))
        if name in ("add", "subtract", "multiply", "divide"):
            return self._arithmetic(builder, var, value, name)
        return value

    def _remember(self, made: relax.Var, var: relax.Var, affine: _Affine) -> relax.Var:
        if self.uses[var] == 1:
            self.affine[made] = affine
        return made

    def _arithmetic(self, builder: relax.BlockBuilder, var: relax.Var, value: relax.Call, name: str) -> relax.Expr:
        left, right = value.args
        if name in ("add", "multiply") and right in self.affine:
            left, right = right, left
        known = self.affine.get(left)
        operand = _per_channel(known, left, right) if known else None
        if known is None or operand is None:
            return value
        if name in ("add", "subtract"):
            shifted = _Affine(known.call, known.shift + (operand if name == "add" else -operand))
            return self._remember(builder.emit(value, var.name), var, shifted)
        scale = operand if name == "multiply" else 1.0 / operand
        return self._scaled(builder, var, known, scale, np.zeros(1, "float32"))

    def _scaled(
        self, builder: relax.BlockBuilder, var: relax.Var, known: _Affine, scale: Array, shift: Array
    ) -> relax.Expr:
        """Bind `(call + known.shift) * scale + shift` with the scale inside the weights."""
        axis, weight_axis = _CHANNELS[call_name(known.call)]
        data, weight = known.call.args
        values = weight.value.numpy()
        scaled = (_along(scale, weight_axis, values.ndim) * values).astype(values.dtype)
        call = relax.Call(known.call.op, [data, constant(scaled)], known.call.attrs, known.call.ty_args)
        result = builder.emit(call)
        total = (known.shift * scale + shift).astype(str(result.ty.dtype.dtype))
        affine = _Affine(call, total)
        if not np.any(total):
            return self._remember(result, var, affine)
        rank = len(static_shape(result))
        shifted = builder.emit(relax.op.add(result, constant(_along(total, axis % rank, rank))))
        return self._remember(shifted, var, affine)

    def _batch_norm(self, builder: relax.BlockBuilder, var: relax.Var, value: relax.TupleGetItem) -> relax.Expr:
        call = (
            builder.lookup_binding(value.tuple_value) if isinstance(value.tuple_value, relax.Var) else value.tuple_value
        )
        if call_name(call) != "nn.batch_norm" or value.index != 0:
            return value
        data, *given = call.args
        if not all(isinstance(item, GenericConst) for item in given):
            return value
        gamma, beta, mean, variance = (item.value.numpy().astype("float64") for item in given)
        scale = (gamma if call.attrs.scale else 1.0) / np.sqrt(variance + float(call.attrs.epsilon))
        shift = (beta if call.attrs.center else 0.0) - mean * scale
        scale, shift = scale.astype(given[0].value.numpy().dtype), shift.astype(given[0].value.numpy().dtype)
        known = self.affine.get(data)
        rank, axis = len(static_shape(data)), int(call.attrs.axis)
        if known is not None and _CHANNELS[call_name(known.call)][0] % rank == axis % rank:
            return self._scaled(builder, var, known, scale, shift)
        scaled = builder.emit(relax.op.multiply(data, constant(_along(scale, axis % rank, rank))))
        return relax.op.add(scaled, constant(_along(shift, axis % rank, rank)))


def _uses(main: relax.Function) -> Counter[relax.Var]:
    """Count the readers of each variable; a variable read through `batch_norm(x)[0]` counts once."""
    found: Counter[relax.Var] = Counter()

    def count(expr: relax.Expr) -> None:
        if isinstance(expr, relax.Var):
            found[expr] += 1

    for _, value in bindings(main):
        relax.analysis.post_order_visit(value, count)
    relax.analysis.post_order_visit(main.body.body, count)
    return found


def _has_constant_weights(call: relax.Call) -> bool:
    weight = call.args[1]
    if not isinstance(weight, GenericConst):
        return False
    if call_name(call) == "matmul":
        return bool(weight.value.numpy().ndim == 2)
    if call_name(call) == "nn.conv2d_transpose":
        return str(call.attrs.kernel_layout) == "IOHW" and int(call.attrs.groups) == 1
    return str(call.attrs.kernel_layout).startswith("O")


def _per_channel(known: _Affine, data: relax.Expr, operand: relax.Expr) -> Array | None:
    """Return a constant as one number per channel of `data` (or one for all), or None where it varies otherwise."""
    if not isinstance(operand, GenericConst) or not str(operand.ty.dtype.dtype).startswith("float"):
        return None
    values: Array = operand.value.numpy()
    shape = static_shape(data)
    axis = _CHANNELS[call_name(known.call)][0] % len(shape)
    if values.size == 1 and values.ndim <= len(shape):
        return values.reshape(1)
    full = (1,) * (len(shape) - values.ndim) + values.shape
    only_channels = all(extent == 1 for place, extent in enumerate(full) if place != axis)
    return values.reshape(-1) if len(full) == len(shape) and only_channels and full[axis] == shape[axis] else None


def _along(values: Array, axis: int, rank: int) -> Array:
    """Return a vector shaped to broadcast along `axis` of a tensor of `rank`."""
    return values.reshape([-1 if place == axis else 1 for place in range(rank)])
