"""Make functions of one byte tables of their 256 values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax, te
from tvm.ir import GenericConst

from backends.tensorir.emit import Expr
from fusion.bindings import call_name, callee
from fusion.constants import constant
from fusion.passes.numpy_operators import OPERATORS
from fusion.passes.rebuild import rebuild_main
from fusion.shapes import known_shape
from fusion.tensors import as_numpy

Array = npt.NDArray[Any]

_LOOK_UP = 64
"""What a look-up takes, in operations on a vector of as many elements: there are none on vectors, and each ends its
kernel, as no product has one for an epilogue. 65,536 take 36 us, with 58 such operations at two a cycle, and the kernel
is one more (one thread of Granite Rapids). A HardSwish between quantisations, of 17 operations, is part of the
convolution before it."""
_BYTES = ("uint8", "int8")


@dataclass(frozen=True)
class TabulateBytes:
    """`quantize(f(dequantize(x)))`  ->  `table[x]`, where f is made of operators on single elements and of numbers, as
    the GELU of a network is whose every step is quantised."""

    name: str = "tabulate_bytes"

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        tables = _Tables()
        rebuilt = rebuild_main(mod, tables.visit, only=("quantize",))
        for symbol, func in tables.functions.items():
            rebuilt[symbol] = func
        return rebuilt


@dataclass(frozen=True)
class _Function:
    """What a value is of one byte.

    Attributes:
        source: The tensor of bytes that it is computed of, of its own shape.
        values: Of all bytes in order, in the value's dtype.
        operations: How many on vectors make it.
    """

    source: relax.Expr
    values: Array
    operations: int


@dataclass
class _Tables:
    """The visit of a function: what is known of its values."""

    known: dict[relax.Expr, _Function] = field(default_factory=dict)
    functions: dict[tvm.ir.GlobalVar, tvm.tirx.PrimFunc] = field(default_factory=dict)

    def visit(self, builder: relax.BlockBuilder, var: relax.Var, value: relax.Expr) -> relax.Expr:
        """Return `value`, looked up where it is quantised and worth it."""
        found = self._function(var, value)
        if found is None:
            return value
        if call_name(value) == "quantize" and found.operations >= _LOOK_UP:
            value = self._look_up(builder, found)
        made = builder.emit(value, var.name)
        self.known[made] = found
        return made

    def _function(self, var: relax.Var, value: relax.Expr) -> _Function | None:
        evaluate = _EVALUATE.get(call_name(value))
        if evaluate is None or known_shape(var) is None:
            return None
        dtype = str(var.ty.dtype.dtype)
        read = [self._operand(arg) for arg in value.args if isinstance(arg, relax.Var)]
        first = read[0] if read else None
        if first is None or any(each is None or not each.source.same_as(first.source) for each in read):
            return None
        made_of = _BYTES if call_name(value) == "quantize" else ("float32",)
        if dtype not in made_of or known_shape(var) != known_shape(first.source):
            return None
        if not all(_is_number(arg) for arg in value.args if isinstance(arg, GenericConst)):
            return None
        operands = [self._values(arg) for arg in value.args if isinstance(arg, relax.Var | GenericConst)]
        with np.errstate(all="ignore"):
            made = evaluate(value, operands)
        if made is None:
            return None
        operations = _OPERATIONS.get(call_name(value), 1) + sum(each.operations for each in read if each is not None)
        return _Function(first.source, made.astype(dtype), operations)

    def _operand(self, arg: relax.Var) -> _Function | None:
        """Return what an operand is; bytes of which nothing is known are themselves."""
        if arg in self.known:
            return self.known[arg]
        if not isinstance(arg.ty, relax.TensorType) or str(arg.ty.dtype.dtype) not in _BYTES:
            return None
        limits = np.iinfo(str(arg.ty.dtype.dtype))
        return _Function(arg, np.arange(limits.min, limits.max + 1).astype(limits.dtype), 0)

    def _values(self, arg: relax.Expr) -> Array:
        if isinstance(arg, GenericConst):
            return as_numpy(arg.value).reshape(())
        found = self._operand(arg)
        assert found is not None, "operands were asked before"
        return found.values

    def _look_up(self, builder: relax.BlockBuilder, function: _Function) -> relax.Expr:
        made = builder.call_te(_looked_up, function.source, constant(function.values), primfunc_name_hint="look_up")
        symbol = callee(made)
        self.functions[symbol] = builder.get()[symbol]
        return made


def _looked_up(data: te.Tensor, table: te.Tensor) -> te.Tensor:
    offset = 128 if str(data.dtype) == "int8" else 0

    def value(*at: Expr) -> Expr:
        return table[data(*at).astype("int32") + offset]

    return te.compute(data.shape, value, name="look_up")


def _is_number(value: GenericConst) -> bool:
    return as_numpy(value.value).size == 1


def _quantized(call: relax.Call, operands: list[Array]) -> Array | None:
    data, scale, zero = operands
    limits = np.iinfo(str(call.attrs.out_dtype))
    moved = np.rint(data / scale) + zero.astype("float32")
    return None if np.isnan(moved).any() else np.clip(moved, limits.min, limits.max)


def _clipped(call: relax.Call, operands: list[Array]) -> Array:
    low, high = (float(bound.value) for bound in call.args[1:])
    return np.clip(operands[0], np.float32(low), np.float32(high))


def _of(function: Callable[..., Array]) -> Callable[[relax.Call, list[Array]], Array]:
    """Return what evaluates a function in float64, rounded once."""
    return lambda call, operands: np.asarray(function(*(each.astype("float64") for each in operands)))


_EVALUATE: Mapping[str, Callable[[relax.Call, list[Array]], Array | None]] = {
    "quantize": _quantized,
    "dequantize": OPERATORS["dequantize"],
    "clip": _clipped,
    "add": _of(np.add),
    "subtract": _of(np.subtract),
    "multiply": _of(np.multiply),
    "divide": _of(np.divide),
    "power": _of(np.power),
    "maximum": _of(np.maximum),
    "minimum": _of(np.minimum),
    "negative": _of(np.negative),
    "abs": _of(np.abs),
    "exp": _of(np.exp),
    "sqrt": _of(np.sqrt),
    "tanh": _of(np.tanh),
    "erf": _of(np.vectorize(math.erf)),
    "sigmoid": _of(lambda x: 1 / (1 + np.exp(-x))),
    "nn.relu": _of(lambda x: np.maximum(x, 0.0)),
    "nn.silu": _of(lambda x: x / (1 + np.exp(-x))),
}
"""What operators on single elements make of float32, and of bytes."""
_OPERATIONS: Mapping[str, int] = {
    "quantize": 6,
    "dequantize": 3,
    "clip": 2,
    "divide": 9,
    "power": 135,
    "exp": 10,
    "sqrt": 13,
    "tanh": 28,
    "erf": 34,
    "sigmoid": 19,
    "nn.silu": 20,
}
"""On vectors, of those that take several: what a kernel of 16,384 elements takes longer with one than without it, at
two operations of 16 lanes a cycle (one thread of Granite Rapids). Quantising, taking back and clipping are counted, as
loads and stores hide half of them."""
