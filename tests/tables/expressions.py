"""Relax modules as nested expressions, as short as a reader can tell them apart."""

from __future__ import annotations

from collections import Counter
from typing import Any

import tvm
from tvm import relax

from fusion.bindings import Bindings, call_name, variables

_INPUTS = "xyzuv"
_SHOWN: dict[str, list[Any]] = {
    "axis": [], "axes": [], "keepdims": [False], "strides": [[1, 1]], "padding": [[0, 0, 0, 0]], "dilation": [[1, 1]],
    "groups": [1], "num_groups": [], "pad_width": [], "pad_value": [0.0],
}  # fmt: skip
"""Attributes of operators, and their values that say nothing."""


def expression(mod: tvm.IRModule) -> str:
    """Return what `main` returns; what it reads twice comes first, by names of their own."""
    function = mod["main"]
    texts: dict[relax.Var, str] = dict(zip(function.params, _INPUTS, strict=False))
    uses = Counter(argument for _, value in Bindings.of(function).values.items() for argument in variables(value))
    shared = []
    for var, value in Bindings.of(function).values.items():
        text = _text(value, texts)
        if uses[var] > 1:
            name = "abcd"[len(shared)]
            shared.append(f"{name} = {text}; ")
            text = name
        texts[var] = text
    return "".join(shared) + texts[function.body.body]


def shapes(mod: tvm.IRModule) -> str:
    """Return names and shapes of the inputs."""
    return ", ".join(f"{name} {_extents(var)}" for name, var in zip(_INPUTS, mod["main"].params, strict=False))


def _text(value: relax.Expr, texts: dict[relax.Var, str]) -> str:
    if isinstance(value, relax.Var):
        return texts[value]
    if isinstance(value, relax.TupleGetItem):
        return f"{texts[value.tuple_value]}[{value.index}]"
    if isinstance(value, relax.ShapeExpr):
        return str([int(extent) for extent in value.values])
    if isinstance(value, relax.Tuple):
        return f"[{', '.join(_text(field, texts) for field in value.fields)}]"
    if not isinstance(value, relax.Call):
        return _constant(value)
    arguments = [_text(argument, texts) for argument in value.args]
    return f"{call_name(value).removeprefix('nn.')}({', '.join([*arguments, *_attributes(value)])})"


def _constant(value: Any) -> str:
    array = value.data.numpy() if hasattr(value, "data") else value.value.numpy()
    return f"{array.item():g}" if array.size == 1 else f"const {list(array.shape)}"


def _attributes(call: relax.Call) -> list[str]:
    found = ((name, getattr(call.attrs, name, None)) for name in _SHOWN)
    plain = ((name, _plain(value)) for name, value in found if value is not None)
    return [f"{name}={value}" for name, value in plain if value not in _SHOWN[name]]


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | float | str) else [_plain(each) for each in value]


def _extents(var: relax.Var) -> list[int]:
    return [int(extent) for extent in var.ty.shape]
