"""Iterates over TVM's arrays without asking for the length and checking the index anew at each item.

A compilation reads a few hundred thousand items, of shapes, operands and bindings. For each there were four calls in
Python, which took more than twice as long as the one that is left.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Any

import tvm_ffi

_item = tvm_ffi.get_global_func("ffi.ArrayGetItem")
_size = tvm_ffi.get_global_func("ffi.ArraySize")


def items(array: tvm_ffi.Array) -> Iterator[Any]:
    """Return the items of `array` in order."""
    size = _size(array)
    return map(_item, repeat(array, size), range(size))


def install() -> None:
    """Iterate over arrays so from now on, in the whole process."""
    tvm_ffi.Array.__iter__ = items
