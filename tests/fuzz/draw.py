"""Draws the shapes, numbers, attributes and operands of one node from a seed, within what its schema allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx.defs import OpSchema

Shape = tuple[int, ...]

SIZES = (0, 1, 1, 1, 2, 2, 3, 3, 4, 5, 7, 8, 9, 16, 17, 33)
"""Extents: none, one, fewer and more than a vector, and one past it."""
MOST_ELEMENTS = 4096
WORDS = ("", "a", "b", "ab", "A b", "naïve", "x" * 40)


@dataclass
class Operand:
    """An input of a node.

    Attributes:
        value: An array, a list of them for a sequence, or None for an optional without a value.
        name: Of the tensor in the graph, where another node or input made it.
        fixed: Whether it should be a constant of the model; None leaves that to chance.
        kind: "tensor", "sequence", "optional", or "" for an input that is left out.
    """

    value: Any
    name: str = ""
    fixed: bool | None = None
    kind: str = "tensor"


LEFT_OUT = Operand(None, kind="")


@dataclass
class Draw:
    """The inputs and attributes of one node in the making.

    Attributes:
        rng: The only source of chance.
        schema: Of the operator, at the opset of the model.
        odd: Whether numbers include NaN, infinities and the limits of their types.
        known: Tensors that nodes before made, by name.
        random: Whether the operator's result is left to chance, so that only types and shapes can be compared.
    """

    rng: np.random.Generator
    schema: OpSchema
    odd: bool = False
    known: dict[str, Any] = field(default_factory=dict)
    inputs: dict[int, Operand] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int | None = None
    random: bool = False
    _types: dict[str, str] = field(default_factory=dict)

    # Chance

    def number(self, low: int, high: int) -> int:
        """Return a whole number from `low` to `high`, both included."""
        return int(self.rng.integers(low, high + 1))

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def pick(self, choices: Sequence[Any]) -> Any:
        return choices[self.number(0, len(choices) - 1)]

    def shape(self, low: int = 0, high: int = 5, smallest: int = 0) -> Shape:
        """Return a shape of rank `low` to `high` of odd extents, none below `smallest`; zeros are rare."""
        rank = self.number(low, high if self.chance(0.9) else max(high, 6) if high >= 5 else high)
        sizes = [size for size in SIZES if size >= smallest]
        empty = self.chance(0.12)
        while True:
            shape = tuple(int(self.pick(sizes)) or (0 if empty else 1) for _ in range(rank))
            if prod(shape) <= MOST_ELEMENTS:
                return shape

    def size(self, smallest: int = 1, largest: int = 33) -> int:
        """Return one odd extent."""
        return int(self.pick([size for size in SIZES if smallest <= size <= largest] or [smallest]))

    def axis(self, rank: int) -> int:
        """Return an axis of a tensor of `rank`, counted from either end."""
        return self.number(-rank, rank - 1) if rank else 0

    def axes(self, rank: int) -> list[int]:
        """Return some axes, each once, in any order, counted from either end."""
        chosen = self.rng.permutation(rank)[
            : self.number(0, rank) if self.chance(0.2) else self.number(1, max(rank, 1))
        ]
        return [int(axis) - (rank if self.chance(0.3) else 0) for axis in chosen]

    def broadcast(self, shape: Shape) -> Shape:
        """Return a shape that broadcasts to `shape`."""
        kept = tuple(1 if self.chance(0.3) else extent for extent in shape)
        return kept[self.number(0, len(kept)) :] if self.chance(0.4) else kept

    def has(self, name: str) -> bool:
        """Whether the operator has an attribute or an input `name` at this opset."""
        return name in self.schema.attributes or any(formal.name == name for formal in self.schema.inputs)

    # Types

    def dtype(self, position: int = 0) -> str:
        """Return the element type of input `position`, as NumPy names it; one for each variable of the schema."""
        formals = self.schema.inputs
        return self.dtype_of(formals[min(position, len(formals) - 1)].type_str)

    def dtype_of(self, variable: str) -> str:
        """Return the element type that `variable` of the schema stands for, chosen once."""
        if variable not in self._types:
            self._types[variable] = self._choose(variable)
        return self._types[variable]

    def bind(self, variable: str, dtype: str) -> None:
        """Let `variable` stand for `dtype` if the schema allows it."""
        if dtype in _element_types(self.schema, variable):
            self._types[variable] = dtype

    def _choose(self, variable: str) -> str:
        allowed = _element_types(self.schema, variable)
        if not allowed:
            return "float32"
        made = [v.dtype.name for v in self.known.values() if isinstance(v, np.ndarray) and v.dtype.name in allowed]
        if made and self.chance(0.8):
            return str(self.pick(made))
        common = [dtype for dtype in allowed if dtype in _COMMON]
        if common and self.chance(0.75):
            return "float32" if "float32" in common and self.chance(0.6) else str(self.pick(common))
        return str(self.pick(allowed))

    # Operands

    def input(self, position: int, shape: Shape, among: str = "any", fixed: bool | None = None) -> np.ndarray:
        """Make input `position` an array of `shape`; return it."""
        array = self.array(self.dtype(position), shape, among)
        self.inputs[position] = Operand(array, fixed=fixed)
        return array

    def given(self, position: int, array: Any, fixed: bool | None = None, kind: str = "tensor") -> None:
        """Make input `position` this value, in the type that the schema wants there."""
        if kind == "tensor":
            array = np.asarray(array)
            if array.dtype.kind != "O":
                array = array.astype(np_dtype(self.dtype(position)))
        self.inputs[position] = Operand(array, fixed=fixed, kind=kind)

    def main(self, low: int = 0, high: int = 5, smallest: int = 0, among: str = "any", position: int = 0) -> Shape:
        """Make input `position` a tensor of rank `low` to `high`, one that a node before made if one fits; return its
        shape."""
        dtype = self.dtype(position)
        fit = [
            name for name, value in self.known.items()
            if isinstance(value, np.ndarray) and value.dtype.name == dtype and low <= value.ndim <= high
            and all(extent >= smallest for extent in value.shape) and value.size <= MOST_ELEMENTS
        ]  # fmt: skip
        if fit and self.chance(0.9):
            name = fit[-1 - min(int(self.rng.geometric(0.5)) - 1, len(fit) - 1)]
            self.inputs[position] = Operand(self.known[name], name)
        else:
            self.input(position, self.shape(low, high, smallest), among)
        return tuple(self.inputs[position].value.shape)

    def optional(self, position: int, shape: Shape, among: str = "any", share: float = 0.6) -> None:
        """Make input `position` an array, or leave it out."""
        if position < len(self.schema.inputs) and self.chance(share):
            self.input(position, shape, among)

    def set(self, name: str, value: Any, always: bool = False) -> None:
        """Set what the schema calls `name`, an attribute or an input of whole numbers; left out at times where it may
        be, and where the opset does not have it."""
        if name in self.schema.attributes:
            if always or self.schema.attributes[name].required or self.chance(0.75):
                self.attributes[name] = value
            return
        for position, formal in enumerate(self.schema.inputs):
            if formal.name == name:
                required = formal.option != OpSchema.FormalParameterOption.Optional
                if always or required or self.chance(0.75):
                    self.given(position, value)

    def set_floats(self, *names: str) -> None:
        """Set attributes of the type float to common values, and to odd ones."""
        for name in names:
            values = (0.0, 0.1, 0.5, 1.0, 2.0, -1.0) if not self.odd else (0.0, -0.0, 1e-30, 1e30, -3.0, 1.0)
            self.set(name, float(self.pick(values)))

    # Numbers

    def array(self, dtype: str, shape: Shape, among: str = "any") -> np.ndarray:
        """Return numbers of `dtype`.

        Args:
            among: "any"; "positive"; "unit", from 0 to 1; "around", from -1 to 1; "few", so that many are equal;
                "tame", any but no odd ones.
        """
        if dtype == "string":
            return np.array([self.pick(WORDS) for _ in range(prod(shape))], object).reshape(shape)
        if dtype == "bool":
            return np.asarray(self.rng.random(shape) < 0.5)
        made = self._numbers(np_dtype(dtype), shape, among)
        return self._with_odd(made) if self.odd and among in ("any", "few", "around") else made

    def _numbers(self, dtype: np.dtype[Any], shape: Shape, among: str) -> np.ndarray:
        if dtype.kind == "c":
            return (self.rng.standard_normal(shape) + 1j * self.rng.standard_normal(shape)).astype(dtype)
        if dtype.kind in "iu" or dtype.name in ("int4", "uint4", "int2", "uint2"):
            low, high = limits(dtype)
            low, high = max(low, 0 if among in ("positive", "unit") else -9), min(high, 9)
            low = max(low, 1) if among == "positive" else low
            return self.rng.integers(low, high + 1, shape).astype(dtype)
        if among in ("unit", "positive"):
            made = self.rng.random(shape) + (0.1 if among == "positive" else 0)
        elif among == "around":
            made = self.rng.random(shape) * 2 - 1
        elif among == "few" or self.chance(0.2):
            made = self.rng.integers(-4, 5, shape) / 2
        else:
            made = self.rng.standard_normal(shape) * self.pick((0.5, 1.0, 1.0, 3.0))
        with np.errstate(all="ignore"):
            return np.asarray(made).astype(dtype)

    def _with_odd(self, made: np.ndarray) -> np.ndarray:
        odd = odd_values(made.dtype)
        if not len(odd) or not made.size:
            return made
        chosen = odd[self.rng.permutation(len(odd))[: self.number(1, 3)]]
        places = self.rng.random(made.shape) < self.pick((0.05, 0.3, 1.0))
        made = made.copy()
        made[places] = self.rng.choice(chosen, int(places.sum()))
        return made


_COMMON = ("float32", "float64", "float16", "int64", "int32", "uint8", "int8", "bool")


def np_dtype(name: str) -> np.dtype[Any]:
    """Return NumPy's dtype of a name; strings are objects."""
    if name == "string":
        return np.dtype(object)
    return np.dtype(getattr(ml_dtypes, name) if hasattr(ml_dtypes, name) else name)


def limits(dtype: np.dtype[Any]) -> tuple[int, int]:
    """Return the least and the greatest number of a type of whole numbers."""
    info = ml_dtypes.iinfo(dtype)
    return int(info.min), int(info.max)


@lru_cache
def odd_values(dtype: np.dtype[Any]) -> np.ndarray:
    """Return what numbers of `dtype` most often go wrong."""
    if dtype.kind in "iu":
        low, high = limits(dtype)
        return np.array(sorted({low, low + 1, -1 if low else high - 1, 0, 1, high // 2 + 1, high}), dtype)
    if dtype.kind == "f" or dtype.name == "bfloat16":
        info = ml_dtypes.finfo(dtype)
        numbers = [np.nan, np.inf, -np.inf, 0.0, -0.0, float(info.smallest_subnormal), float(info.max), -0.5, 1.5, 2.5]
        return np.array(numbers).astype(dtype)
    return np.array([], dtype)


@lru_cache
def dtype_name(tensor_type: int) -> str:
    """Return NumPy's name of an element type of ONNX; "" for what NumPy has no type for."""
    if tensor_type == TensorProto.STRING:
        return "string"
    try:
        return str(np.dtype(helper.tensor_dtype_to_np_dtype(tensor_type)).name)
    except KeyError:
        return ""


def element_type(dtype: np.dtype[Any]) -> int:
    """Return ONNX's element type of an array's dtype."""
    return TensorProto.STRING if dtype.kind in "OUS" else int(helper.np_dtype_to_tensor_dtype(dtype))


_ONNX_NAMES = {
    "float": "float32", "double": "float64", "float4e2m1": "float4_e2m1fn", "float8e4m3fn": "float8_e4m3fn",
    "float8e4m3fnuz": "float8_e4m3fnuz", "float8e5m2": "float8_e5m2", "float8e5m2fnuz": "float8_e5m2fnuz",
    "float8e8m0": "float8_e8m0fnu",
}  # fmt: skip


def _element_types(schema: OpSchema, variable: str) -> list[str]:
    """Return the element types that `variable`, of a constraint or a type itself, may stand for."""
    allowed = next(
        (list(c.allowed_type_strs) for c in schema.type_constraints if c.type_param_str == variable), [variable]
    )
    names = []
    for text in allowed:
        if "tensor(" in text and "map(" not in text:
            inner = text[text.index("tensor(") + len("tensor(") :].rstrip(")")
            names.append(_ONNX_NAMES.get(inner, inner))
    return list(dict.fromkeys(names))


def type_proto(value: Any, kind: str = "tensor", shape: Sequence[int | str | None] | None = None) -> onnx.TypeProto:
    """Return the ONNX type of a value; `shape` None leaves the shape open."""
    if kind == "optional":
        return helper.make_optional_type_proto(type_proto(value))
    if isinstance(value, list):
        return helper.make_sequence_type_proto(helper.make_tensor_type_proto(element_type(value[0].dtype), None))
    return helper.make_tensor_type_proto(element_type(np.asarray(value).dtype), shape)
