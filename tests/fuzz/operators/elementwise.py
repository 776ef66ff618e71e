"""Operators that compute each element by itself."""

from __future__ import annotations

import numpy as np

from tests.fuzz.draw import Draw, element_type, np_dtype
from tests.fuzz.operators.rows import row


@row(
    "Abs", "Acos", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor",
    "HardSwish", "Identity", "IsNaN", "Log", "Mish", "Neg", "Not", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign",
    "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh", "Shape", "Size",
)  # fmt: skip
def _unary(d: Draw) -> None:
    rank = len(d.main(among=d.pick(("any", "any", "around", "positive", "few"))))
    d.set("start", d.number(-rank - 1, rank + 1))
    d.set("end", d.number(-rank - 1, rank + 1))


@row("Acosh")
def _acosh(d: Draw) -> None:
    shape = d.shape()
    d.given(0, d.array(d.dtype(), shape, "positive") + np_dtype(d.dtype()).type(1))


@row("Celu", "Elu", "HardSigmoid", "LeakyRelu", "Selu", "Shrink", "ThresholdedRelu", "Swish")
def _with_floats(d: Draw) -> None:
    d.main()
    d.set_floats("alpha", "beta", "gamma", "lambd", "bias")


@row("Gelu")
def _gelu(d: Draw) -> None:
    d.main()
    d.set("approximate", d.pick(("none", "tanh")))


@row("SwiGLU")
def _swiglu(d: Draw) -> None:
    shape = (*d.shape(0, 3), 2 * d.size(1, 9))
    d.input(0, shape)
    if len(d.schema.inputs) > 1:
        d.input(1, shape)
    d.set_floats("alpha", "beta", "limit")


@row("IsInf")
def _isinf(d: Draw) -> None:
    d.main()
    d.set("detect_negative", d.number(0, 1))
    d.set("detect_positive", d.number(0, 1))


@row("Add", "And", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual",
     "Mul", "Or", "Sub", "Xor", "PRelu")  # fmt: skip
def _binary(d: Draw) -> None:
    _pair(d, d.pick(("any", "few")))


@row("Div", "Mod")
def _divide(d: Draw) -> None:
    _pair(d, d.pick(("any", "few")), "positive" if d.chance(0.7) else "any")
    if d.has("fmod"):
        floating = np_dtype(d.dtype()).kind == "f" or d.dtype() == "bfloat16"
        d.set("fmod", 1 if floating else d.number(0, 1), always=floating)


@row("Pow")
def _power(d: Draw) -> None:
    _pair(d, "positive", "any")


@row("BitShift")
def _shift(d: Draw) -> None:
    _pair(d, "any", "unit")
    d.set("direction", d.pick(("LEFT", "RIGHT")))


def _pair(d: Draw, among: str, second: str = "") -> None:
    """Draw two operands that broadcast, the larger one first where the operator broadcasts one way only."""
    if d.has("broadcast"):  # up to opset 6: suffixes of the shape, or any part of it from `axis` on
        shape = d.main(1, 5, among=among)
        first = d.number(0, len(shape) - 1)
        last = d.number(first + 1, len(shape))
        whole = d.chance(0.5)
        d.input(1, shape if whole else shape[first:last], second or among)
        if not whole:
            d.set("broadcast", 1, always=True)
            d.set("axis", first, always=True)
        return
    shape = d.main(among=among)
    one_way = d.schema.name == "PRelu"
    other = d.broadcast(shape) if one_way or d.chance(0.8) else (*d.shape(0, 1), *d.broadcast(shape))
    d.input(1, other, second or among)
    if not one_way and d.chance(0.3):
        d.inputs[0], d.inputs[1] = _swapped(d)


def _swapped(d: Draw):
    same = d.schema.inputs[0].type_str == d.schema.inputs[1].type_str
    return (d.inputs[1], d.inputs[0]) if same else (d.inputs[0], d.inputs[1])


@row("Max", "Min", "Mean", "Sum")
def _several(d: Draw) -> None:
    shape = d.main()
    old = d.schema.since_version < 8  # no broadcasting
    for position in range(1, d.pick((1, 2, 2, 3, 5))):
        d.input(position, shape if old else d.broadcast(shape))


@row("Clip")
def _clip(d: Draw) -> None:
    d.main()
    if d.has("min") and "min" in d.schema.attributes:
        d.set("min", float(d.pick((-1.0, 0.0, 0.5))))
        d.set("max", float(d.pick((1.0, 2.0, 0.2))))
        return
    for position in (1, 2):
        d.optional(position, ())


@row("Where")
def _where(d: Draw) -> None:
    shape = d.main(position=1)
    d.input(0, d.broadcast(shape))
    d.input(2, d.broadcast(shape))


@row("Cast", "CastLike", "BitCast")
def _cast(d: Draw) -> None:
    shape = d.main(among=d.pick(("any", "around", "few")))
    target = d.dtype_of(d.schema.outputs[0].type_str)
    if d.schema.name == "BitCast" and np_dtype(target).itemsize != np_dtype(d.dtype()).itemsize:
        target = d.dtype()
    if d.dtype() == "string":
        numbers = [d.pick(("1", "-2.5", "3e2", "nan", "inf", "0")) for _ in range(int(np.prod(shape)))]
        d.given(0, np.array(numbers, object).reshape(shape))
    if d.schema.name == "CastLike":
        d.given(1, d.array(d.dtype(1), (1,)))
    else:
        d.set("to", "FLOAT" if d.schema.since_version < 6 else element_type(np_dtype(target)), always=True)
    d.set("saturate", d.number(0, 1))


@row("CumSum", "CumProd")
def _cumulate(d: Draw) -> None:
    shape = d.main(1, 4)
    d.given(1, np.array(d.axis(len(shape))))
    d.set("exclusive", d.number(0, 1))
    d.set("reverse", d.number(0, 1))


@row("QuantizeLinear", "DequantizeLinear")
def _quantize(d: Draw) -> None:
    shape = d.main(1, 4)
    axis = d.axis(len(shape))
    per_axis = d.chance(0.5)
    size = (shape[axis],) if per_axis else ()
    d.input(1, size, "positive")
    if d.chance(0.6):
        d.bind("T3", "uint8")
    if d.schema.name == "QuantizeLinear" and d.chance(0.3):
        d.set("output_dtype", 3)
    else:
        d.optional(2, size, "unit", share=0.8)
    d.set("axis", axis, always=per_axis)
    d.set("saturate", d.number(0, 1))


@row("DynamicQuantizeLinear")
def _dynamic_quantize(d: Draw) -> None:
    d.main()
    d.outputs = 3


@row("Dropout")
def _dropout(d: Draw) -> None:
    d.main()
    d.set("ratio", float(d.pick((0.0, 0.3, 0.9))))
    d.set("is_test", 1, always=True)
    d.outputs = d.number(1, 2) if d.schema.since_version >= 10 else 1  # what was dropped was left open before


@row("Bernoulli", "RandomNormalLike", "RandomUniformLike")
def _random_like(d: Draw) -> None:
    d.main(among="unit")
    d.set("dtype", d.pick((1, 10, 11)), always=d.dtype() not in ("float32", "float64", "float16"))
    d.random = True


@row("RandomNormal", "RandomUniform")
def _random(d: Draw) -> None:
    d.set("shape", list(d.shape(1, 4)), always=True)
    d.set("dtype", d.pick((1, 10, 11)))
    d.random = True


@row("Multinomial")
def _multinomial(d: Draw) -> None:
    d.input(0, (d.size(1, 5), d.size(1, 9)), "positive")
    d.set("sample_size", d.number(1, 9))
    d.set("dtype", d.pick((6, 7)))
    d.random = True
