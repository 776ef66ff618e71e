"""Rounds the operands of matmuls and convolutions to bfloat16, where that is faster."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

import ml_dtypes
import tvm
from tvm import relax, te
from tvm.ir import GenericConst

from backends.backend import RoundingPolicy
from fusion.bindings import call_name, callee
from fusion.constants import constant
from fusion.passes.rebuild import rebuild_main, with_attrs
from fusion.shapes import static_shape

_MOVES = ("permute_dims", "reshape")


@dataclass(frozen=True)
class LowerPrecision:
    """`matmul(x, w)`  ->  `matmul(astype(x, bfloat16), bfloat16 w)`, with float32 sums and results.

    This covers matmuls, except batched ones whose rows end inside a vector, and channels-last convolutions with
    constant weights, unless float32 with Winograd's algorithm is estimated to be faster. A value is rounded once for
    all of its readers, by the kernel that computes it. If it is too large for the caches, an addition reads the rounded
    copy too, as in ResNet, and the float32 value is not stored.
    """

    policy: RoundingPolicy
    name: str = "lower_precision"

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        rounding = _Rounding(self.policy)
        rebuilt = rebuild_main(mod, rounding.visit)
        for symbol, func in rounding.functions.items():
            rebuilt[symbol] = func
        return rebuilt


@dataclass
class _Rounding:
    policy: RoundingPolicy
    rounded: dict[relax.Expr, relax.Var] = field(default_factory=dict)
    functions: dict[tvm.ir.GlobalVar, tvm.tirx.PrimFunc] = field(default_factory=dict)

    def visit(self, builder: relax.BlockBuilder, var: relax.Var, value: relax.Expr) -> relax.Expr:
        """Return `value`, with rounded operands where it is a matmul or a convolution to take."""
        if call_name(value) == "add":
            return self._add(builder, value)
        if not self._is_taken(value, var):
            return value
        return with_attrs(value, [self._round(builder, operand) for operand in value.args], out_dtype="float32")

    def _is_taken(self, value: relax.Expr, result: relax.Var) -> bool:
        name = call_name(value)
        if name not in ("matmul", "nn.conv2d"):
            return False
        if any(str(part.ty.dtype.dtype) != "float32" for part in (result, *value.args)) or 0 in static_shape(result):
            return False
        data, weight = value.args
        if name == "matmul" and len(static_shape(data)) > 1 and len(static_shape(weight)) > 1:
            is_constant = isinstance(weight, GenericConst) and len(static_shape(weight)) == 2
            return is_constant or self.policy.takes_batches(static_shape(weight))
        return name == "nn.conv2d" and isinstance(weight, GenericConst) and self.policy.takes_convolution(value)

    def _add(self, builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        """Return a sum that reads the rounded copy of a large operand."""
        for operand, other in (call.args, reversed(call.args)):
            if operand not in self.rounded or static_shape(operand) != static_shape(other):
                continue
            if not self.policy.stays_near(4 * prod(static_shape(operand))):
                made = builder.call_te(_add_rounded, other, self.rounded[operand], primfunc_name_hint="add")
                self.functions[callee(made)] = builder.get()[callee(made)]
                return made
        return call

    def _round(self, builder: relax.BlockBuilder, operand: relax.Expr) -> relax.Expr:
        if isinstance(operand, GenericConst):
            return constant(operand.value.numpy().astype(ml_dtypes.bfloat16))
        if operand not in self.rounded:
            source = builder.lookup_binding(operand)
            if call_name(source) in _MOVES:  # half the bytes are moved, and the rounding ends the kernel before it
                moved, *how = source.args
                made = with_attrs(source, [self._round(builder, moved), *how])
            else:
                made = relax.op.astype(operand, "bfloat16")
            self.rounded[operand] = builder.emit(made, "rounded")
        return self.rounded[operand]


def _add_rounded(left: te.Tensor, right: te.Tensor) -> te.Tensor:
    return te.compute(left.shape, lambda *at: left(*at) + right(*at).astype("float32"), name="add")
