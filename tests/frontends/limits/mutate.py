"""Changes one thing of a valid node: an attribute, an element of a constant, an operand, a shape, a dtype."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import onnx
from onnx import AttributeProto, helper

from tests.frontends.limits.seeds import Seed

BIG = 1 << 40
INTS = (-BIG, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 7, BIG)
FLOATS = (float("nan"), float("inf"), -1.0, 0.0, 0.5, 1.5)
STRINGS = ("", "bogus")
DTYPES = ("float32", "int64", "int32", "bool", "float64", "uint8")


def mutations(seed: Seed) -> Iterator[tuple[str, Seed]]:
    """Yield what was changed and the changed model, which may still be valid."""
    yield from _attributes(seed)
    yield from _operands(seed)
    for name in seed.constants:
        yield from ((f"{name} = {_text(array)}", _with_value(seed, name, array)) for array in _arrays(seed, name))
    for name, array in seed.values.items():
        for made in _shapes(array):
            yield f"{name} is {made.dtype}{list(made.shape)}", _with_value(seed, name, made)
        for dtype in DTYPES:
            if dtype != array.dtype:
                with np.errstate(all="ignore"):
                    cast = array.astype(dtype)
                yield f"{name} is {dtype}", _with_value(seed, name, cast)


def _attributes(seed: Seed) -> Iterator[tuple[str, Seed]]:
    given = {attribute.name: helper.get_attribute_value(attribute) for attribute in seed.node.attribute}
    schema = onnx.defs.get_schema(seed.node.op_type, seed.opset, seed.node.domain)
    for name, attribute in schema.attributes.items():
        kind = int(attribute.type.value)
        default = given.get(name)
        if default is None and attribute.default_value.name:
            default = helper.get_attribute_value(attribute.default_value)
        for value in _values(kind, default):
            yield f"{name}={value}", _with_attribute(seed, name, value, kind)
        if name in given:
            yield f"no {name}", _without(seed, name)
        for value in (1.5, 1, "text", [1, 1]):
            yield f"{name}={value!r}", _with_attribute(seed, name, value, None)
    yield "unknown attribute", _with_attribute(seed, "nobody", 1, None)


def _values(kind: int, default: object) -> Iterator[object]:
    if kind == AttributeProto.INT:
        yield from INTS
    elif kind == AttributeProto.FLOAT:
        yield from FLOATS
    elif kind == AttributeProto.STRING:
        yield from STRINGS
        if isinstance(default, bytes):
            yield from (default.decode().lower() + "s", default.decode().swapcase())
    elif kind in (AttributeProto.INTS, AttributeProto.FLOATS):
        items = list(default) if isinstance(default, list | tuple) and default else [1, 1]
        choices = INTS if kind == AttributeProto.INTS else FLOATS
        yield from ([choice, *items[1:]] for choice in choices)
        yield from ([*items[:-1], choice] for choice in choices)
        yield from ([items[0]] * len(items), items[:-1], [*items, items[-1]], [])
    elif kind == AttributeProto.STRINGS:
        yield from (["bogus"], [])
        if isinstance(default, list | tuple):
            yield [*default, default[0]]


def _operands(seed: Seed) -> Iterator[tuple[str, Seed]]:
    inputs = list(seed.node.input)
    for index, name in enumerate(inputs):
        if name:
            yield f"input {index} is missing", _with_inputs(seed, [*inputs[:index], "", *inputs[index + 1 :]])
    yield "one input less", _with_inputs(seed, inputs[:-1])
    if inputs:
        yield "one input more", _with_inputs(seed, [*inputs, inputs[0]])
        yield "an empty input more", _with_inputs(seed, [*inputs, ""])
    more, fewer = _copy(seed.node), _copy(seed.node)
    more.output.append("more")
    yield "one output more", replace(seed, node=more)
    if len(fewer.output) > 1:
        del fewer.output[-1]
        yield "one output less", replace(seed, node=fewer)


def _arrays(seed: Seed, name: str) -> Iterator[np.ndarray]:
    array = seed.values[name]
    for at in {0, array.size - 1} if array.size else ():
        for choice in INTS:
            if np.iinfo(array.dtype).min <= choice <= np.iinfo(array.dtype).max:
                changed = array.copy()
                changed.reshape(-1)[at] = choice
                yield changed
    if array.ndim == 1:
        yield from (array[:-1], np.append(array, array[-1:]), array[:0])
        if array.size > 1:
            yield np.full_like(array, array[0])


def _shapes(array: np.ndarray) -> Iterator[np.ndarray]:
    for axis, size in enumerate(array.shape):
        for new in {size + 1, size - 1, 1, 0} - {size}:
            if new >= 0:
                yield np.resize(array, (*array.shape[:axis], new, *array.shape[axis + 1 :]))
    yield array[None]
    yield np.resize(array, array.shape[1:])


def _with_value(seed: Seed, name: str, array: np.ndarray) -> Seed:
    return replace(seed, values={**seed.values, name: np.ascontiguousarray(array).reshape(array.shape)})


def _with_inputs(seed: Seed, inputs: list[str]) -> Seed:
    node = _copy(seed.node)
    node.input[:] = inputs
    return replace(seed, node=node)


def _without(seed: Seed, name: str) -> Seed:
    node = _copy(seed.node)
    kept = [attribute for attribute in seed.node.attribute if attribute.name != name]
    del node.attribute[:]
    node.attribute.extend(kept)
    return replace(seed, node=node)


def _with_attribute(seed: Seed, name: str, value: object, kind: int | None) -> Seed:
    changed = _without(seed, name)
    changed.node.attribute.append(helper.make_attribute(name, value, attr_type=kind))
    return changed


def _copy(node: onnx.NodeProto) -> onnx.NodeProto:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    return copy


def _text(array: np.ndarray) -> str:
    return f"{array.tolist()}"
