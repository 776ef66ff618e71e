"""What is asked quickly of TVM's objects is what TVM answers."""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import tvm_ffi
from tvm import relax, tirx
from tvm.ir import Expr

from fusion import quick_objects

_META: Any = type(tvm_ffi.Object)


@pytest.fixture(autouse=True)
def _installed() -> Iterator[None]:
    quick_objects.install()
    yield
    quick_objects.install()


def test_an_object_is_of_the_classes_that_its_own_inherits_from() -> None:
    size, array = tirx.Var("n", "int64"), tvm_ffi.Array([1])
    for value, cls in ((size, Expr), (size, tirx.Var), (array, Sequence), (array, tvm_ffi.Object)):
        assert isinstance(value, cls)
        assert issubclass(type(value), cls)
    for value, other in ((size, relax.Call), (size, tvm_ffi.Array), ([1], tvm_ffi.Array), (None, Expr)):
        assert not isinstance(value, other)


def test_a_declared_subclass_is_one() -> None:
    class Declared:
        pass

    assert not isinstance(Declared(), tvm_ffi.Object)
    assert "__instancecheck__" in vars(_META)
    tvm_ffi.Object.register(Declared)
    assert isinstance(Declared(), tvm_ffi.Object)
    assert issubclass(Declared, tvm_ffi.Object)
    assert isinstance(tvm_ffi.Array([1]), tvm_ffi.Object)
    assert _META.__instancecheck__ is ABCMeta.__instancecheck__


@pytest.mark.parametrize("elements", [[], [1], [1, "two", 3.0, tirx.Var("n", "int64")]])
def test_the_elements_of_an_array(elements: list[object]) -> None:
    array = tvm_ffi.Array(elements)
    assert [*array] == [*map(array.__getitem__, range(len(elements)))]
    assert len([*array]) == len(elements)
    for place in range(-len(elements), len(elements)):
        assert array[place] == elements[place]
    assert array[1:] == elements[1:]
    for place in (len(elements), -len(elements) - 1):
        with pytest.raises(IndexError):
            array[place]
    with pytest.raises(TypeError):
        array["first"]
