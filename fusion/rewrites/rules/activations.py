"""Activations that exporters write as several operators."""

from __future__ import annotations

from math import pi, sqrt

from tvm import relax
from tvm.relax import op

from fusion.declined import Declined
from fusion.rewrites.graph import Emit, Value
from fusion.rewrites.patterns import Either, Is, Named, Names, Power, Product, Sum, Tensor, matcher, minus
from fusion.rewrites.rule import Example, Rule, scalar

_X = Tensor("x")
_CUBE = Sum(_X, Product(Power(_X, 3.0), number=0.044715))
_FACTORED = Sum(Product(Power(_X, 2.0), number=0.044715), number=1.0)
_TANH = Is("tanh", Either(Product(_CUBE, number=sqrt(2 / pi)), Product(_X, _FACTORED, number=sqrt(2 / pi))))
_ERF = Is("erf", Product(_X, number=sqrt(0.5)))


def _gated(step: Is) -> Either:
    """x (1 + step) / 2 with the half in every place."""
    half = Product(step, number=0.5)
    return Either(Product(_X, Sum(step, number=1.0), number=0.5), Product(_X, Sum(half, number=0.5)))


def _erf_example(b: relax.BlockBuilder, x: relax.Var, divisor: float = sqrt(2)) -> relax.Expr:
    step = b.emit(op.add(b.emit(op.erf(b.emit(op.divide(x, scalar(divisor))))), scalar(1)))
    return op.multiply(b.emit(op.multiply(x, step)), scalar(0.5))


GELU = Rule(
    name="gelu",
    form="x * (1 + erf(x / sqrt 2)) / 2  ->  gelu(x)",
    source="ONNX Runtime's GeluFusion",
    assumes="numbers within 1e-5 of theirs",
    roots=frozenset(("multiply", "divide")),
    match=matcher(_gated(_ERF)),
    build=lambda emit, root, names: op.nn.gelu(names["x"].expr),
    example=Example(_erf_example, ((3, 40),)),
    near_miss=Example(lambda b, x: _erf_example(b, x, 1.5), ((3, 40),)),
)


def _tanh_example(b: relax.BlockBuilder, x: relax.Var, cubic: float = 0.044715) -> relax.Expr:
    cube = b.emit(op.multiply(b.emit(op.power(x, scalar(3))), scalar(cubic)))
    inner = b.emit(op.multiply(b.emit(op.add(x, cube)), scalar(sqrt(2 / pi))))
    step = b.emit(op.add(b.emit(op.tanh(inner)), scalar(1)))
    return op.multiply(b.emit(op.multiply(x, scalar(0.5))), step)


GELU_TANH = Rule(
    name="gelu_tanh",
    form="x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) / 2  ->  gelu_tanh(x)",
    source="ONNX Runtime's FastGeluFusion",
    assumes="numbers within 1e-5 of theirs",
    roots=frozenset(("multiply", "divide")),
    match=matcher(_gated(_TANH)),
    build=lambda emit, root, names: op.nn.gelu_tanh(names["x"].expr),
    example=Example(_tanh_example, ((3, 40),)),
    near_miss=Example(lambda b, x: _tanh_example(b, x, 0.05), ((3, 40),)),
)


SILU = Rule(
    name="silu",
    form="x * sigmoid(x)  ->  silu(x)",
    source="ONNX Runtime's QuickGeluFusion",
    assumes="nothing",
    roots=frozenset(("multiply",)),
    match=matcher(Product(_X, Is("sigmoid", _X))),
    build=lambda emit, root, names: op.nn.silu(names["x"].expr),
    example=Example(lambda b, x: op.multiply(x, b.emit(op.sigmoid(x))), ((3, 40),)),
    near_miss=Example(lambda b, x, y: op.multiply(x, b.emit(op.sigmoid(y))), ((3, 40), (3, 40))),
)


_Z = Is("exp", Is("negative", Is("abs", _X)))
_SERIES = Product(_Z, Sum(minus(Product(_Z, Sum(minus(Product(_Z, number=1 / 3)), number=0.5))), number=1.0))
_LOG = Is("where", Is("less", _Z, Sum(number=0.01)), _SERIES, Is("log", Sum(_Z, number=1.0)))
_SOFTPLUS = Either(Sum(Is("nn.relu", _X), _LOG), Is("log", Sum(Is("exp", _X), number=1.0)))
_GATE_IS_ONE = 20.0
"""From here on tanh(softplus(x)) is 1 in float32, and e^2x does not overflow."""


def _mish_gate(emit: Emit, root: Value, names: Names) -> relax.Expr:
    if root.dtype != "float32":
        raise Declined(f"it is of {root.dtype}, not float32")
    power = emit(op.exp(emit(op.minimum(names["x"].expr, scalar(_GATE_IS_ONE)))))
    above = emit(op.multiply(power, emit(op.add(power, scalar(2)))))
    return op.divide(above, emit(op.add(above, scalar(2))))


def _softplus_example(b: relax.BlockBuilder, x: relax.Var, cut: float = 0.01) -> relax.Expr:
    z = b.emit(op.exp(b.emit(op.negative(b.emit(op.abs(x))))))
    slope = b.emit(op.subtract(scalar(0.5), b.emit(op.multiply(z, scalar(1 / 3)))))
    inner = b.emit(op.subtract(scalar(1), b.emit(op.multiply(z, slope))))
    logarithm = b.emit(op.log(b.emit(op.add(z, scalar(1)))))
    small = b.emit(op.less(z, scalar(cut)))
    chosen = b.emit(op.where(small, b.emit(op.multiply(z, inner)), logarithm))
    return op.tanh(b.emit(op.add(b.emit(op.nn.relu(x)), chosen)))


MISH_GATE = Rule(
    name="mish_gate",
    form="tanh(log(1 + e^x))  ->  n / (n + 2), n = e^x (e^x + 2)",
    source="Misra, Mish (BMVC 2020), by the definition of tanh",
    assumes="nothing: both are 1 where e^x would overflow",
    roots=frozenset(("tanh",)),
    match=matcher(Is("tanh", _SOFTPLUS)),
    build=_mish_gate,
    example=Example(_softplus_example, ((3, 40),)),
    near_miss=Example(lambda b, x: _softplus_example(b, x, 0.5), ((3, 40),)),
)


def _softmax(emit: Emit, root: Value, names: Names) -> relax.Expr:
    axes = [_axes(names[reduced]) for reduced in ("max", "sum")]
    if axes[0] != axes[1] or len(axes[0]) != 1:
        raise Declined(f"maximum and sum run over axes {axes[0]} and {axes[1]}")
    return op.nn.softmax(names["x"].expr, axes[0][0])


def _axes(reduced: Value) -> list[int]:
    rank = len(reduced.data.shape)
    return list(range(rank)) if reduced.attrs.axis is None else sorted(int(axis) % rank for axis in reduced.attrs.axis)


def _softmax_example(b: relax.BlockBuilder, x: relax.Var, axis: int = -1) -> relax.Expr:
    greatest = b.emit(op.max(x, -1, keepdims=True))
    part = b.emit(op.exp(b.emit(op.subtract(x, greatest))))
    return op.divide(part, b.emit(op.sum(part, axis, keepdims=True)))


_EXP = Named("exp", Is("exp", Sum(_X, minus(Is("max", _X, name="max")))))

SOFTMAX = Rule(
    name="softmax",
    form="e = exp(x - max(x)); e / sum(e)  ->  softmax(x)",
    source="folklore",
    assumes="the maximum is subtracted already: without, it would overflow where softmax does not",
    roots=frozenset(("divide", "multiply")),
    match=matcher(Product(_EXP, Power(Is("sum", Tensor("exp"), name="sum"), -1.0))),
    build=_softmax,
    example=Example(_softmax_example, ((3, 4, 40),)),
    near_miss=Example(lambda b, x: _softmax_example(b, x, 1), ((3, 4, 40),)),
    declines="run over axes",
)


def _log_example(b: relax.BlockBuilder, x: relax.Var, shift: float = 0.0) -> relax.Expr:
    shares = b.emit(op.nn.softmax(x, 1))
    return op.log(b.emit(op.add(shares, scalar(shift))) if shift else shares)


LOG_SOFTMAX = Rule(
    name="log_softmax",
    form="log(softmax(x))  ->  log_softmax(x)",
    source="folklore",
    assumes="nothing: a share below the least number of its type has a logarithm, where it was that of 0",
    roots=frozenset(("log",)),
    match=matcher(Is("log", Is("nn.softmax", _X, name="softmax"))),
    build=lambda emit, root, names: op.nn.log_softmax(names["x"].expr, int(names["softmax"].attrs.axis)),
    example=Example(_log_example, ((3, 4, 40),)),
    near_miss=Example(lambda b, x: _log_example(b, x, 1e-6), ((3, 4, 40),)),
    despite_cost="it is accurate, also beside a softmax that others read",
)
