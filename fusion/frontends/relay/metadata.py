"""The metadata section of a Relay text: TVM's JSON of the objects that `meta[KIND][N]` refers to.

A list of nodes refers to each other by index, node 0 being none; the root maps each kind to an array of its objects.
What `attrs` says are strings, and only the class of a node tells a number from the index of a node; `_REFERENCES` knows
the classes that Relay's operators have.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from fusion.frontends.relay.arrays import ByteReader, DamagedArray
from fusion.frontends.relay.syntax import Position, Value

Entry: TypeAlias = "Value | np.ndarray"

_DEEPEST = 64
_EXPRESSIONS_OF_SHAPES = ("tir.", "arith.", "Variable")
_ARRAYS_OF_AXES = frozenset(
    f"relay.attrs.{name}Attrs" for name in ("Reduce", "ArgReduce", "Variance", "Squeeze", "L2Normalize")
)
_REFERENCES = frozenset({
    "axes", "begin", "block_shape", "channels", "crops", "dilation", "dilations", "end", "indices_or_sections", "k",
    "kernel_size", "newshape", "oshape", "out_shape", "output_padding", "output_size", "pad_width", "padding",
    "paddings", "pool_size", "reps", "repeats", "roi", "shape", "size", "start", "step", "stop", "strides", "units",
})  # fmt: skip
"""Fields of operators' attributes that hold objects (arrays, or integers that may be symbolic), not plain numbers."""
_STRINGS = ("layout", "mode", "method")
"""Ends of the names of fields that hold a string itself or, in later versions, the index of one."""


class MetadataError(ValueError):
    """The section is damaged, or lacks what the text refers to.

    Attributes:
        place: Line and column within the section, where they are known.
    """

    def __init__(self, why: str, place: Position | None = None) -> None:
        super().__init__(why)
        self.place = place


class Metadata:
    """The objects of a section, each read when it is asked for.

    Args:
        section: JSON; empty for a text without a section.

    Raises:
        MetadataError: The section is no JSON of this kind.
    """

    def __init__(self, section: str) -> None:
        self._empty = not section.strip()
        data = {} if self._empty else _parse(section)
        self._nodes = _listed(data, "nodes", dict)
        self._arrays = _listed(data, "b64ndarrays", str)
        self._root = data.get("root", 0)
        self._read: dict[int, Entry] = {}
        self._open: set[int] = set()

    def entry(self, kind: str, index: int) -> Entry:
        """Return what `meta[kind][index]` is: the array of a constant, and of other objects their fields by name.

        Raises:
            MetadataError: There is no such entry, or it is damaged.
        """
        if self._empty:
            raise MetadataError("the text has no metadata section: print it with astext(show_meta_data=True)")
        root = self._node(self._root)
        kinds = dict(zip(root.get("keys", ()), root.get("data", ()), strict=False))
        if kind not in kinds:
            raise MetadataError(f"the metadata section has no {kind}; it has {', '.join(map(str, kinds)) or 'nothing'}")
        entries = self._node(kinds[kind]).get("data", ())
        if not isinstance(entries, list) or index >= len(entries):
            raise MetadataError(f"the metadata section has {len(entries)} of {kind}")
        return self._entry(entries[index])

    def value(self, kind: str, index: int) -> Value:
        """Return what `meta[kind][index]` is as an attribute: of a constant its numbers, nested as its axes are."""
        entry = self.entry(kind, index)
        return _nested(entry.tolist()) if isinstance(entry, np.ndarray) else entry

    def _node(self, index: Any) -> dict[str, Any]:
        if not isinstance(index, int) or not 0 <= index < len(self._nodes):
            raise MetadataError(f"the metadata section has no node {index}")
        node: dict[str, Any] = self._nodes[index]
        if not all(isinstance(node.get(name, kind()), kind) for name, kind in _FIELDS):
            raise MetadataError(f"node {index} of the metadata section is damaged")
        return node

    def _entry(self, index: Any) -> Entry:
        node = self._node(index)
        if index in self._open or len(self._open) >= _DEEPEST:
            raise MetadataError(f"node {index} of the metadata section contains itself, or nodes are nested too deep")
        if index not in self._read:
            self._open.add(index)
            try:
                self._read[index] = self._decode(node)
            except (KeyError, TypeError, ValueError, OverflowError) as error:
                if isinstance(error, MetadataError):
                    raise
                raise MetadataError(f"node {index} of the metadata section is damaged: {error}") from error
            finally:
                self._open.discard(index)
        return self._read[index]

    def _decode(self, node: dict[str, Any]) -> Entry:
        kind, fields = node.get("type_key", ""), node.get("attrs", {})
        if kind in _SIMPLE:
            return _SIMPLE[kind](fields, _representation(node))
        if kind == "":
            return None
        if kind in ("Array", "runtime.Array"):
            return tuple(self._value(index) for index in node.get("data", ()))
        if kind in ("Map", "runtime.Map"):
            return self._map(node)
        if kind == "relay.Constant":
            return self._array(int(fields["data"]))
        if kind.startswith(_EXPRESSIONS_OF_SHAPES):
            return None
        return {name: self._field(kind, name, str(text)) for name, text in fields.items()}

    def _map(self, node: dict[str, Any]) -> Mapping[str, Value]:
        data, keys = node.get("data", []), node.get("keys")
        if keys is None:
            return {str(self._value(key)): self._value(value) for key, value in zip(data[::2], data[1::2], strict=True)}
        return {str(key): self._value(value) for key, value in zip(keys, data, strict=True)}

    def _value(self, index: Any) -> Value:
        entry = self._entry(index)
        return _nested(entry.tolist()) if isinstance(entry, np.ndarray) else entry

    def _field(self, kind: str, name: str, text: str) -> Value:
        number = _number(text)
        if not isinstance(number, int):
            return None if text == "null" else number
        refers = name in _REFERENCES or (name == "axis" and kind in _ARRAYS_OF_AXES)
        named = name.endswith(_STRINGS) and 0 < number < len(self._nodes)
        return self._value(number) if refers or named else number

    def _array(self, index: int) -> np.ndarray:
        if not 0 <= index < len(self._arrays):
            raise MetadataError(f"the metadata section has no array {index}")
        try:
            return ByteReader(base64.b64decode(self._arrays[index], validate=True)).array()
        except (binascii.Error, DamagedArray) as error:
            raise MetadataError(f"array {index} of the metadata section is damaged: {error}") from error


_FIELDS: tuple[tuple[str, type], ...] = (("type_key", str), ("attrs", dict), ("data", list), ("keys", list))


def _parse(section: str) -> dict[str, Any]:
    try:
        data = json.loads(section)
    except json.JSONDecodeError as error:
        place = Position(error.lineno, error.colno)
        raise MetadataError(f"the metadata section is no JSON: {error.msg}", place) from error
    except (ValueError, RecursionError) as error:
        raise MetadataError(f"the metadata section is no JSON: {error}") from error
    if not isinstance(data, dict):
        raise MetadataError("the metadata section is no JSON object")
    return data


def _listed(data: dict[str, Any], name: str, kind: type) -> list[Any]:
    entries = data.get(name, [])
    if not isinstance(entries, list) or not all(isinstance(entry, kind) for entry in entries):
        raise MetadataError(f"{name!r} of the metadata section is damaged")
    return entries


def _representation(node: dict[str, Any]) -> str:
    """Return the text that some objects are saved as; in base64 its length comes first, 8 bytes."""
    if "repr_b64" in node:
        reader = ByteReader(base64.b64decode(node["repr_b64"], validate=True))
        return str(reader.take(reader.integer()), "utf-8")
    return str(node.get("repr_str", ""))


def _integer(fields: Mapping[str, Any], _: str) -> Value:
    value = int(fields["value"])
    return bool(value) if fields.get("dtype") == "bool" else value


_SIMPLE: dict[str, Callable[[Mapping[str, Any], str], Value]] = {
    "IntImm": _integer,
    "FloatImm": lambda fields, _: float(fields["value"]),
    "StringImm": lambda fields, _: str(fields["value"]),
    "tir.StringImm": lambda fields, _: str(fields["value"]),
    "runtime.String": lambda _, text: text,
    "runtime.BoxInt": lambda _, text: int(text),
    "runtime.BoxFloat": lambda _, text: float(text),
    "runtime.BoxBool": lambda _, text: text == "true",
    "SourceName": lambda _, text: text,
    "GlobalVar": lambda fields, _: str(fields["name_hint"]),
}


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def _nested(value: Any) -> Value:
    if isinstance(value, list):
        return tuple(_nested(element) for element in value)
    return bool(value) if isinstance(value, bool) else float(value) if isinstance(value, float) else int(value)
