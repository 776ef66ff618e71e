"""Expressions of stages as a thread computes them: float16 and bfloat16 in float32, NaN as the graph has them.

What is narrow in memory is widened where it is loaded and rounded where it is stored; what lies between, in registers,
is not rounded.

    b[i] = max(a[i], c[i]) * float16(2)
    ->  b[i] = float16(Select(x <= inf, Select(x > y, x, y), x) * 2.0)          x = float32(a[i]), y = float32(c[i])
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx
from tvm.ir import Call, Op, PrimType, TensorLoad, Var
from tvm_ffi.structural import StructuralMutator

from backends.tensorir.exact_values import REWRITTEN, exact, is_inexact
from backends.tensorir.intrinsics import GELU
from backends.tensorir.stages import Stage, dims_of, dtype_of
from fusion.declined import Declined
from fusion.structural import mutate

Expr = Any
NARROW = frozenset(("float16", "bfloat16"))
_BINARY = (
    tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE,
)  # fmt: skip
_LIMITS = (tirx.Max, tirx.Min)
_SQRT_HALF = 0.7071067811865476


def in_float32(stages: Sequence[Stage], outputs: Collection[Var]) -> list[Stage]:
    """Return `stages` with float32 for what they make in float16 or bfloat16; `outputs` are rounded.

    Raises:
        Declined: An expression takes bits of a narrow number, or a reduction makes a narrow output, of which each
            step would be rounded.
    """
    reduced = {stage.buffer for stage in stages if stage.combine is not None}
    if any(dtype_of(buffer) in NARROW for buffer in reduced.intersection(outputs)):
        raise Declined("a reduction makes a narrow output")
    kept = {stage.buffer: _wide_buffer(stage.buffer) for stage in stages if stage.buffer not in outputs}
    writer = _Writer(kept)
    return [writer.stage(stage) for stage in stages]


def pass_nan(kind: Any, first: Expr, second: Expr) -> Expr:
    """Return the maximum or minimum of two floats, NaN where either is: CUDA's own drop NaN."""
    if isinstance(first, tirx.FloatImm):
        first, second = second, first
    is_beyond = first > second if kind is tirx.Max else first < second
    either = tirx.Select(is_beyond, first, second)
    if isinstance(second, tirx.FloatImm):
        is_beyond = first < second if kind is tirx.Max else first > second
        return tirx.Select(is_beyond, second, first)
    return tirx.Select(first <= tirx.const(float("inf"), dtype_of_value(first)), either, first)


def combined(stage: Stage, first: Expr, second: Expr) -> Expr:
    """Return two partial results of a reduction as one: where a maximum has to pass NaN on, CUDA's own drops it."""
    both = stage.combined(first, second)
    is_limit = isinstance(both, _LIMITS) and dtype_of_value(both).startswith("float")
    return pass_nan(type(both), first, second) if is_limit else both


def dtype_of_value(value: Expr) -> str:
    """Return the dtype of an expression; "" of one that has none."""
    return str(value.ty.dtype) if isinstance(value.ty, PrimType) else ""


def _wide_buffer(buffer: Var) -> Var:
    if dtype_of(buffer) not in NARROW:
        return buffer
    return tirx.decl_buffer(dims_of(buffer), "float32", buffer.name)


@dataclass(frozen=True)
class _Writer:
    """Rewrites expressions.

    Attributes:
        kept: The buffers in which the kernel keeps what it makes, by those of the graph.
    """

    kept: Mapping[Var, Var]

    def stage(self, stage: Stage) -> Stage:
        buffer = self.kept.get(stage.buffer, stage.buffer)
        value = self.wide(stage.value)
        is_rounded = dtype_of_value(value) != dtype_of(buffer)
        identity = None if stage.identity is None else self.wide(stage.identity)
        value = tirx.Cast(dtype_of(buffer), value) if is_rounded else value
        return replace(stage, buffer=buffer, value=value, identity=identity)

    def wide(self, value: Expr) -> Expr:
        """Return an expression in which no number is narrow."""
        rules = [
            (tirx.FloatImm, self._number), (TensorLoad, self._load), (tirx.Cast, self._cast),
            (_LIMITS, self._limit), (_BINARY, self._binary), (tirx.Not, self._not), (tirx.Select, self._select),
            (Call, self._call),
        ]  # fmt: skip
        return mutate(value, rules)

    def _number(self, number: tirx.FloatImm, mutator: StructuralMutator) -> Expr:
        return tirx.const(number.value, "float32") if dtype_of_value(number) in NARROW else number

    def _load(self, load: TensorLoad, mutator: StructuralMutator) -> Expr:
        indices = [self.wide(index) for index in load.indices]
        loaded = tirx.BufferLoad(self.kept.get(load.source, load.source), indices)
        return tirx.Cast("float32", loaded) if dtype_of_value(loaded) in NARROW else loaded

    def _cast(self, cast: tirx.Cast, mutator: StructuralMutator) -> Expr:
        value, dtype = self.wide(cast.value), dtype_of_value(cast)
        dtype = "float32" if dtype in NARROW else dtype
        if dtype_of_value(value) == "bool":
            return tirx.Select(value, tirx.const(1, dtype), tirx.const(0, dtype))
        return value if dtype_of_value(value) == dtype else _exact(tirx.Cast(dtype, value))

    def _limit(self, limit: Any, mutator: StructuralMutator) -> Expr:
        first, second = self.wide(limit.a), self.wide(limit.b)
        is_float = dtype_of_value(first).startswith("float")
        return pass_nan(type(limit), first, second) if is_float else type(limit)(first, second)

    def _binary(self, binary: Any, mutator: StructuralMutator) -> Expr:
        return _exact(type(binary)(self.wide(binary.a), self.wide(binary.b)))

    def _not(self, negation: tirx.Not, mutator: StructuralMutator) -> Expr:
        return _exact(tirx.Not(self.wide(negation.a)))

    def _select(self, select: tirx.Select, mutator: StructuralMutator) -> Expr:
        parts = (select.condition, select.true_value, select.false_value)
        return tirx.Select(*(self.wide(part) for part in parts))

    def _call(self, call: Call, mutator: StructuralMutator) -> Expr:
        name = str(call.op.name) if isinstance(call.op, Op) else ""
        arguments = [self.wide(argument) for argument in call.args]
        if name == GELU:
            return _gelu(arguments[0])
        if name == "tirx.sigmoid":
            one = tirx.const(1, dtype_of_value(arguments[0]))
            return one / (one + tirx.exp(-arguments[0]))
        narrow = dtype_of_value(call) in NARROW
        if name == "tirx.reinterpret" and (narrow or any(dtype_of_value(each) in NARROW for each in call.args)):
            raise Declined("it takes the bits of a narrow number")
        return tirx.call_intrin("float32" if narrow else dtype_of_value(call), call.op, *arguments)


def _gelu(x: Expr) -> Expr:
    """Return x times the share of a standard normal distribution below x: erfc keeps its digits where that is small."""
    dtype = dtype_of_value(x)
    half = tirx.const(0.5, dtype) * x
    erfc = {"float32": "erfcf", "float64": "erfc"}[dtype]
    return half * tirx.call_pure_extern(dtype, erfc, x * tirx.const(-_SQRT_HALF, dtype))


def _exact(node: Any) -> Expr:
    """Return what TVM computes otherwise than the graph says as what the graph means."""
    is_other = isinstance(node, REWRITTEN) and is_inexact(node)
    return exact(node, lambda value: value, _to_integer) if is_other else node


def _to_integer(value: Expr, dtype: str, lanes: str) -> Expr:
    """Return a float as an integer by a function on the device: TVM's narrowing of indices fails on the lowest int64,
    which comparisons would name."""
    name = {"int32": "to_int32", "int64": "to_int64"}[dtype]
    return tirx.call_pure_extern(dtype + lanes, name, value)
