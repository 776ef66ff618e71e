"""Memory-bound regions of transformers, written as exporters write them, in sizes that each level of the memory holds.

A region is ONNX's text with the extents left open; what it declares without values are weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

import numpy as np
import onnx
from onnx import helper, numpy_helper

from bench.inputs import InputSpec
from bench.kernels.case import Case

Extents = Mapping[str, int]

# A few hundred kB to 2 MB, some MB, and 100 MB read and written.
_ROWS = ({"r": 128, "c": 768}, {"r": 1024, "c": 1024}, {"r": 6144, "c": 2048})
_SCORES = ({"h": 12, "q": 128}, {"h": 12, "q": 512}, {"h": 12, "q": 1024})
_HEADS = ({"h": 12, "s": 128, "d": 64}, {"h": 32, "s": 512, "d": 64}, {"h": 24, "s": 4096, "d": 128})

_LAYER_NORM = """(float[{r},{c}] x) => (float[{r},{c}] y)
<float[{c}] gamma, float[{c}] beta, float two = {{2.0}}, float epsilon = {{0.00001}}>
{{
    mean = ReduceMean<axes = [-1]>(x)
    deviation = Sub(x, mean)
    square = Pow(deviation, two)
    variance = ReduceMean<axes = [-1]>(square)
    shifted = Add(variance, epsilon)
    root = Sqrt(shifted)
    normal = Div(deviation, root)
    scaled = Mul(normal, gamma)
    y = Add(scaled, beta)
}}"""
_LAYER_NORMALIZATION = """(float[{r},{c}] x) => (float[{r},{c}] y)
<float[{c}] gamma, float[{c}] beta>
{{
    y = LayerNormalization<axis = -1, epsilon = 0.00001>(x, gamma, beta)
}}"""
_SOFTMAX = """(float[{h},{q},{q}] x) => (float[{h},{q},{q}] y)
{{
    y = Softmax<axis = -1>(x)
}}"""
_GELU = """(float[{r},{c}] x) => (float[{r},{c}] y)
<float root = {{1.4142135381698608}}, float one = {{1.0}}, float half = {{0.5}}>
{{
    quotient = Div(x, root)
    error = Erf(quotient)
    step = Add(error, one)
    gated = Mul(x, step)
    y = Mul(gated, half)
}}"""
_GELU_TANH = """(float[{r},{c}] x) => (float[{r},{c}] y)
<float three = {{3.0}}, float cubic = {{0.044715}}, float scale = {{0.7978845608028654}}, float one = {{1.0}},
 float half = {{0.5}}>
{{
    cube = Pow(x, three)
    small = Mul(cube, cubic)
    inner = Add(x, small)
    angle = Mul(inner, scale)
    tangent = Tanh(angle)
    step = Add(tangent, one)
    halved = Mul(x, half)
    y = Mul(halved, step)
}}"""
_ROTARY = """(float[1,{h},{s},{d}] x, float[1,1,{s},{d}] cos, float[1,1,{s},{d}] sin) => (float[1,{h},{s},{d}] y)
<int64[1] start = {{0}}, int64[1] middle = {{{half}}}, int64[1] end = {{9223372036854775807}}, int64[1] axis = {{3}}>
{{
    straight = Mul(x, cos)
    low = Slice(x, start, middle, axis)
    high = Slice(x, middle, end, axis)
    negative = Neg(high)
    turned = Concat<axis = -1>(negative, low)
    across = Mul(turned, sin)
    y = Add(straight, across)
}}"""
_MASK = """(float[{h},{q},{q}] x, bool[1,{q},{q}] keep) => (float[{h},{q},{q}] y)
<float scale = {{0.125}}, float lowest = {{-inf}}>
{{
    scaled = Mul(x, scale)
    y = Where(keep, scaled, lowest)
}}"""
_SOFTMAX_WHERE = """(float[{h},{q},{q}] x, bool[1,{q},{q}] keep) => (float[{h},{q},{q}] y)
<float scale = {{0.125}}, float lowest = {{-inf}}>
{{
    scaled = Mul(x, scale)
    masked = Where(keep, scaled, lowest)
    y = Softmax<axis = -1>(masked)
}}"""
_SOFTMAX_ADD = """(float[{h},{q},{q}] x, float[1,{q},{q}] mask) => (float[{h},{q},{q}] y)
<float scale = {{8.0}}>
{{
    scaled = Div(x, scale)
    masked = Add(scaled, mask)
    y = Softmax<axis = -1>(masked)
}}"""

_REGIONS: tuple[tuple[str, str, str, tuple[Extents, ...]], ...] = (
    ("layer norm", "decomposed", _LAYER_NORM, _ROWS),
    ("layer norm", "operator", _LAYER_NORMALIZATION, _ROWS),
    ("gelu", "erf", _GELU, _ROWS),
    ("gelu", "tanh", _GELU_TANH, _ROWS),
    ("softmax", "alone", _SOFTMAX, _SCORES),
    ("softmax", "added mask", _SOFTMAX_ADD, _SCORES),
    ("softmax", "where", _SOFTMAX_WHERE, _SCORES),
    ("mask", "where", _MASK, _SCORES),
    ("rotary", "halves", _ROTARY, _HEADS),
)


def regions() -> Iterator[Case]:
    """Yield every region in every size, the smallest first."""
    for family, form, text, sizes in _REGIONS:
        for extents in sizes:
            yield _case(family, form, text, extents)


def _case(family: str, form: str, text: str, extents: Extents) -> Case:
    graph = text.format(**extents, half=extents.get("d", 0) // 2)
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\nregion {graph}')
    model.graph.initializer.extend(_weight(value) for value in model.graph.value_info)
    del model.graph.value_info[:]
    onnx.checker.check_model(model)
    inputs = tuple(_spec(value) for value in model.graph.input)
    moved = [*inputs, *(_spec(value) for value in model.graph.output)]
    weights = sum(numpy_helper.to_array(tensor).nbytes for tensor in model.graph.initializer)
    size = weights + sum(prod(spec.shape) * np.dtype(spec.dtype).itemsize for spec in moved)
    return Case(
        name=f"{family} ({form}) {'x'.join(map(str, inputs[0].shape))}",
        family=family,
        model=model,
        inputs=inputs,
        flops=0,
        bytes=size,
        used={},
    )


def _weight(value: onnx.ValueInfoProto) -> onnx.TensorProto:
    spec = _spec(value)
    return numpy_helper.from_array(spec.draw(np.random.default_rng(spec.shape)), spec.name)


def _spec(value: onnx.ValueInfoProto) -> InputSpec:
    kind = value.type.tensor_type
    shape = tuple(dim.dim_value for dim in kind.shape.dim)
    return InputSpec(value.name, shape, helper.tensor_dtype_to_np_dtype(kind.elem_type).name)
