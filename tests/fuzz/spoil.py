"""Takes one thing about a drawn node past what is valid, or to its limit; ONNX Runtime says which of the two it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.fuzz.draw import Draw, Operand, limits, odd_values

NUMBERS = (-1, 0, 1, 2, 7, -7, 100, -100, 2**31 - 1, -(2**31), 2**31, 2**62, -(2**63), 2**63 - 1)
REALS = (float("nan"), float("inf"), float("-inf"), 0.0, -1.0, 1e30, 1e-30)


def spoil(d: Draw) -> str:
    """Change `d` in one way; return what was done, "" if nothing was."""
    ways = [way for way in _WAYS if way.__name__ != "_attribute" or d.attributes]
    for _ in range(4):
        note = d.pick(ways)(d)
        if note:
            return str(note)
    return ""


def _attribute(d: Draw) -> str:
    """Give an attribute a value of its type that may not be allowed."""
    name = d.pick(sorted(d.attributes))
    value = d.attributes[name]
    if isinstance(value, bool | int):
        d.attributes[name] = int(d.pick(NUMBERS))
    elif isinstance(value, float):
        d.attributes[name] = float(d.pick(REALS))
    elif isinstance(value, str):
        d.attributes[name] = d.pick(("", "nonsense", value.upper(), value.lower(), value + "\0"))
    elif isinstance(value, list) and value and not isinstance(value[0], str):
        d.attributes[name] = _list(d, list(value))
    else:
        return ""
    return f"{name}={d.attributes[name]!r}"


def _list(d: Draw, values: list[Any]) -> list[Any]:
    at = d.number(0, len(values) - 1)
    way = d.number(0, 4)
    if way <= 1:
        values[at] = type(values[at])(d.pick(NUMBERS[:10]))
    elif way == 2 and len(values) > 1:
        del values[at]
    elif way == 3:
        values.append(values[at])
    else:
        values[at] = values[-1 - at]
    return values


def _missing_attribute(d: Draw) -> str:
    if not d.attributes:
        return ""
    name = d.pick(sorted(d.attributes))
    del d.attributes[name]
    return f"no {name}"


def _schema_attribute(d: Draw) -> str:
    """Set an attribute of whole numbers that the row did not."""
    names = [
        n for n, a in d.schema.attributes.items() if n not in d.attributes and str(a.type).endswith(("INT", "INTS"))
    ]
    if not names:
        return ""
    name = d.pick(sorted(names))
    several = str(d.schema.attributes[name].type).endswith("INTS")
    d.attributes[name] = [int(d.pick(NUMBERS[:10])) for _ in range(d.number(1, 4))] if several else int(d.pick(NUMBERS))
    return f"{name}={d.attributes[name]!r}"


def _unknown_attribute(d: Draw) -> str:
    d.attributes["no_such_attribute"] = 1
    return "an unknown attribute"


def _missing_input(d: Draw) -> str:
    if not d.inputs:
        return ""
    position = d.pick(sorted(d.inputs))
    d.inputs[position] = Operand(None, kind="")
    return f"input {position} left out"


def _more_inputs(d: Draw) -> str:
    if not d.inputs:
        return ""
    d.inputs[max(d.inputs) + 1] = d.inputs[min(d.inputs)]
    return "one input more"


def _shape(d: Draw) -> str:
    """Give an input another shape."""
    position, array = _array(d)
    if array is None or array.dtype.kind == "O":
        return ""
    shape = list(array.shape)
    way = d.number(0, 3)
    if way == 0 and shape:
        at = d.number(0, len(shape) - 1)
        shape[at] = d.pick((0, 1, shape[at] + 1, shape[at] * 2))
    elif way == 1:
        shape.insert(d.number(0, len(shape)), d.pick((1, 2)))
    elif way == 2 and shape:
        del shape[d.number(0, len(shape) - 1)]
    else:
        shape = []
    if int(np.prod(shape)) > 8192:
        return ""
    d.inputs[position] = Operand(np.resize(array, shape) if array.size else np.zeros(shape, array.dtype))
    return f"input {position} of shape {tuple(shape)}"


def _dtype(d: Draw) -> str:
    """Give an input another type."""
    position, array = _array(d)
    if array is None or array.dtype.kind == "O":
        return ""
    other = d.pick(("float32", "float64", "int64", "int32", "uint8", "bool", "float16"))
    with np.errstate(all="ignore"):
        d.inputs[position] = Operand(array.astype(other))
    return f"input {position} of {other}"


def _numbers(d: Draw) -> str:
    """Put the limits of its type, NaN or infinity into an input."""
    position, array = _array(d)
    if array is None or array.dtype.kind == "O" or not array.size or not len(odd_values(array.dtype)):
        return ""
    changed = array.copy()
    values = odd_values(array.dtype)
    if array.dtype.kind in "iu" and d.chance(0.5):
        low, high = limits(array.dtype)
        values = np.array([n for n in (*NUMBERS, *array.shape) if low <= n <= high], array.dtype)
    changed.flat[d.number(0, array.size - 1)] = d.pick(values)
    d.inputs[position] = Operand(changed, fixed=d.inputs[position].fixed)
    return f"an odd number in input {position}"


def _array(d: Draw) -> tuple[int, np.ndarray | None]:
    fit = [p for p, operand in d.inputs.items() if isinstance(operand.value, np.ndarray) and not operand.name]
    if not fit:
        return -1, None
    position = d.pick(sorted(fit))
    return position, d.inputs[position].value


_WAYS: tuple[Callable[[Draw], str], ...] = (
    _attribute, _attribute, _attribute, _schema_attribute, _schema_attribute, _missing_attribute, _unknown_attribute,
    _missing_input, _more_inputs, _shape, _shape, _dtype, _numbers, _numbers, _numbers,
)  # fmt: skip
