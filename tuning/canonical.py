"""Plain data as JSON text of which there is one only, and reading what may be damaged."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any


def canonical(data: Mapping[str, Any]) -> str:
    """Return the one text of `data`, a line. Numbers of it are finite."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)


@dataclass(frozen=True)
class Fields:
    """An object of JSON that may hold anything. What reads a field raises ValueError where it has another form."""

    data: Mapping[str, Any]

    @staticmethod
    def of(data: object) -> Fields:
        """Return the fields of `data`."""
        return Fields(_checked(data, isinstance(data, dict)))

    def names(self, name: str) -> tuple[str, ...]:
        """Return a list of texts."""
        found = self.data.get(name)
        return tuple(_checked(found, isinstance(found, list) and all(isinstance(each, str) for each in found)))

    def fields(self, name: str) -> Fields:
        """Return those of an object."""
        return Fields.of(self.data.get(name))

    def text(self, name: str) -> str:
        """Return a text."""
        found = self.data.get(name)
        return str(_checked(found, isinstance(found, str)))

    def texts(self, name: str) -> dict[str, str]:
        """Return texts by name."""
        inner = self.fields(name)
        return {key: inner.text(key) for key in inner.data}

    def count(self, name: str) -> int:
        """Return a whole number, 0 or more."""
        return int(_checked(self.data.get(name), _is_count(self.data.get(name))))

    def counts(self, name: str) -> dict[str, int]:
        """Return whole numbers by name."""
        inner = self.fields(name)
        return {key: inner.count(key) for key in inner.data}

    def seconds(self, name: str) -> float:
        """Return a time that is over."""
        found = self.data.get(name)
        right = isinstance(found, int | float) and not isinstance(found, bool) and isfinite(found) and found >= 0
        return float(_checked(found, right))

    def flag(self, name: str) -> bool:
        """Return a truth value."""
        found = self.data.get(name)
        return bool(_checked(found, isinstance(found, bool)))

    def tensors(self, name: str) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Return dtypes and shapes."""
        found = self.data.get(name)
        return tuple(map(_tensor, _checked(found, isinstance(found, list))))


def _tensor(found: Any) -> tuple[str, tuple[int, ...]]:
    dtype, shape = _checked(found, isinstance(found, list) and len(found) == 2)
    whole = isinstance(dtype, str) and isinstance(shape, list) and all(map(_is_count, shape))
    return dtype, tuple(_checked(shape, whole))


def _is_count(found: object) -> bool:
    return isinstance(found, int) and not isinstance(found, bool) and found >= 0


def _checked(found: Any, right: bool) -> Any:
    if not right:
        raise ValueError(f"{str(found)[:50]!r} is not what it should be")
    return found
