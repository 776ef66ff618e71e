"""Edits one field of a message: a number, a name, a length, a type, an entry of a list, or a message inside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

_NUMBERS = (0, 1, -1, 2, 7, 100, 255, 1000, 2**31 - 1, -(2**31), 2**31, 2**40, 2**62, -(2**63), 2**63 - 1)
_REALS = (float("nan"), float("inf"), -1.0, 0.0, 1e30)
_WORDS = (
    "", ".", "/", "..", "../weights.bin", "/dev/zero", "/proc/self/environ", "weights.bin", "main", "x\0y", "a" * 5000,
    "é\u202e", "-1", "99999999999999999999", "1e3", "None", 'y"""\nraise SystemExit', "Conv", "ai.onnx",
    "com.microsoft",
)  # fmt: skip
_MOST = 2000
"""Fields to choose from, at most."""


def edit(message: Message, rng: np.random.Generator) -> str:
    """Change one field somewhere in `message`; return which."""
    places = list(_fields(message, ""))[:_MOST]
    holder, field, path = places[int(rng.integers(len(places)))]
    if field.is_repeated:
        return f"{path} {_edit_list(getattr(holder, field.name), field, message, rng)}"
    if rng.random() < 0.15:
        holder.ClearField(field.name)
        return f"{path} cleared"
    if field.message_type is not None:
        return f"{path} {_edit_message(getattr(holder, field.name), message, rng)}"
    value = _other(field, getattr(holder, field.name), message, rng)
    try:
        setattr(holder, field.name, value)
    except ValueError:  # out of range of the field, or no text
        return f"{path} kept"
    return f"{path}={str(value)[:40]!r}"


def _fields(message: Message, path: str) -> Iterator[tuple[Message, FieldDescriptor, str]]:
    """Yield every field that is set, of `message` and of those inside it."""
    for field, value in message.ListFields():
        here = f"{path}.{field.name}".lstrip(".")
        yield message, field, here
        if field.message_type is not None:
            for at, inner in enumerate(value) if field.is_repeated else ((None, value),):
                yield from _fields(inner, here if at is None else f"{here}[{at}]")


def _edit_list(values: Any, field: FieldDescriptor, root: Message, rng: np.random.Generator) -> str:
    at = int(rng.integers(len(values)))
    way = str(rng.choice(["delete", "repeat", "swap", "value", "value", "clear"]))
    if way == "delete":
        del values[at]
    elif way == "clear":
        del values[:]
    elif way in ("repeat", "swap") and field.message_type is not None:
        other = values[int(rng.integers(len(values)))]
        if way == "repeat":
            values.add().CopyFrom(other)
        else:
            kept = type(other)()
            kept.CopyFrom(other)
            other.CopyFrom(values[at])
            values[at].CopyFrom(kept)
    elif way == "repeat":
        values.append(values[at])
    elif field.message_type is not None:
        return _edit_message(values[at], root, rng)
    else:
        try:
            values[at] = _other(field, values[at], root, rng)
        except ValueError:
            return "kept"
    return f"{way} {at}"


def _edit_message(message: Message, root: Message, rng: np.random.Generator) -> str:
    """Replace `message` by another of its kind, or empty it."""
    alike = [inner for inner in _messages(root) if type(inner) is type(message) and inner is not message]
    if alike and rng.random() < 0.7:
        other = type(message)()
        other.CopyFrom(alike[int(rng.integers(len(alike)))])
        message.CopyFrom(other)
        return "replaced by another"
    message.Clear()
    return "emptied"


def _messages(message: Message) -> Iterator[Message]:
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in value if field.is_repeated else (value,):
                yield from _messages(inner)


def _other(field: FieldDescriptor, value: Any, root: Message, rng: np.random.Generator) -> Any:
    """Return another value for a field that is no message."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return (
            int(_NUMBERS[int(rng.integers(len(_NUMBERS)))]) if rng.random() < 0.7 else value + int(rng.choice([-1, 1]))
        )
    if isinstance(value, float):
        return _REALS[int(rng.integers(len(_REALS)))]
    if isinstance(value, str):
        names = sorted(set(_texts(root)))
        return str(rng.choice(names)) if names and rng.random() < 0.6 else _WORDS[int(rng.integers(len(_WORDS)))]
    cut = int(rng.integers(len(value) + 1))
    return (value[:cut], value + value[:cut], b"", b"\xff" * len(value))[int(rng.integers(4))]


def _texts(message: Message) -> Iterator[str]:
    for inner in _messages(message):
        for _, value in inner.ListFields():
            if isinstance(value, str):
                yield value
            elif not isinstance(value, bytes | int | float | Message):
                yield from (item for item in value if isinstance(item, str))
