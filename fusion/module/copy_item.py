"""Copies the arrays of an item that is run later than it was taken: until then its owner may write to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fusion.errors import InputError
from fusion.module.input_slot import to_array
from fusion.signature import TensorSpec

_ANY = TensorSpec("", None, "")


def copy_item(item: Any) -> Any:
    """Return `item`, what `CompiledModule.map` takes, with arrays of its own; what is no array, and what cannot be
    read, of which the run says why, stays as it is."""
    if isinstance(item, Mapping):
        try:
            return {name: _copy(item[name]) for name in item}
        except Exception:  # whatever a mapping of the caller's own raises
            return item
    return tuple(map(_copy, item)) if isinstance(item, tuple) else _copy(item)


def _copy(value: Any) -> Any:
    """Return a copy of an array; of a list, which is the value of an input that is a sequence, copies of its arrays."""
    if isinstance(value, list):
        return [_copy(part) for part in value]
    try:
        return np.array(to_array(value, _ANY))
    except InputError:  # the run says it once more, with the name of the input
        return value
