"""Lets Python ask TVM's objects for their class and arrays for their elements in a third of the time.

A lowering of PP-OCR's recogniser for all sizes asks `isinstance` 350,000 times of classes of TVM, each of which is an
abstract one that may have subclasses only by declaration, and reads 120,000 elements of arrays, each of which passes
through four functions of Python: 0.6 of its 6 CPU seconds (two vCPUs of Zen 3).
"""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Iterator
from typing import Any

import tvm_ffi
from tvm_ffi import _ffi_api

_Meta: Any = type(tvm_ffi.Object)
"""The class of all of TVM's classes."""
_CHECKS = ("__instancecheck__", "__subclasscheck__")
_get = tvm_ffi.Array.__getitem__
_element, _size = _ffi_api.ArrayGetItem, _ffi_api.ArraySize


def _item(array: Any, place: Any) -> Any:
    if type(place) is int and 0 <= place < _size(array):
        return _element(array, place)
    if type(place) is slice:
        return [_element(array, each) for each in range(*place.indices(_size(array)))]
    return _get(array, place)


def _elements(array: Any) -> Iterator[Any]:
    """Yield the elements, which no array changes."""
    return iter([_element(array, place) for place in range(_size(array))])


def _declare(cls: Any, subclass: type) -> type:
    """Declare a subclass that does not inherit from `cls`: from then on classes are asked as abstract ones are."""
    for name in _CHECKS:
        if name in vars(_Meta):
            delattr(_Meta, name)
    return ABCMeta.register(cls, subclass)


def install() -> None:
    """Ask quickly from now on, in the whole process."""
    for name in _CHECKS:
        setattr(_Meta, name, vars(type)[name])
    _Meta.register = _declare
    array: Any = tvm_ffi.Array
    array.__getitem__, array.__iter__ = _item, _elements
