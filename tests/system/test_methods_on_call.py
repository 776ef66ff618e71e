"""Dataclasses of ours write methods when these are first called, and are what they would be otherwise."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from fusion.system import methods_on_call

_SOURCE = '''
from dataclasses import InitVar, dataclass, field

@dataclass(frozen=True, order=True)
class Point:
    """A point."""
    x: int
    y: int = 2
    others: tuple = field(default_factory=tuple, kw_only=True)

@dataclass(frozen=True)
class Named(Point):
    """A point with a name."""
    name: str = "a"

@dataclass
class Node:
    """A node."""
    self: int
    below: list = field(default_factory=list, repr=True)
    start: InitVar[int] = 3
    count: int = field(default=0, init=False)

    def __post_init__(self_, start):
        self_.count = start

@dataclass(frozen=True, slots=True)
class Small:
    """Has slots."""
    x: int = 1

@dataclass(eq=False)
class Itself:
    """Is equal to itself alone."""
    x: int
'''


def _module(name: str) -> Iterator[Any]:
    methods_on_call.install()
    module = ModuleType(name)
    sys.modules[name] = module
    exec(_SOURCE, vars(module))
    yield module
    del sys.modules[name]


@pytest.fixture
def ours() -> Iterator[Any]:
    yield from _module("fusion.made_up")


@pytest.fixture
def others() -> Iterator[Any]:
    yield from _module("another")


def _is_written(cls: type, name: str) -> bool:
    return vars(cls)[name].__code__.co_filename == "<string>"


def test_methods_are_written_when_they_are_called(ours: Any) -> None:
    methods = ("__init__", "__eq__", "__hash__", "__lt__", "__setattr__")
    assert not any(_is_written(ours.Point, name) for name in methods)
    point = ours.Point(1)
    assert _is_written(ours.Point, "__init__")
    assert [*inspect.signature(ours.Point).parameters] == ["x", "y", "others"]
    assert ours.Point.__init__.__qualname__ == "Point.__init__"
    assert not any(_is_written(ours.Point, name) for name in methods[1:])
    assert point == ours.Point(1)
    assert point < ours.Point(2)
    assert hash(point) == hash(ours.Point(1))
    assert all(_is_written(ours.Point, name) for name in methods[:-1])


def test_those_of_others_are_written_at_once(others: Any) -> None:
    assert _is_written(others.Point, "__init__")
    assert _is_written(others.Named, "__setattr__")


def test_classes_are_what_they_would_be(ours: Any, others: Any) -> None:
    for module in (ours, others):
        named = module.Named(1, name="b", others=(3,))
        assert (named.x, named.y, named.others, named.name) == (1, 2, (3,), "b")
        assert repr(named) == "Named(x=1, y=2, others=(3,), name='b')"
        assert repr(named) == repr(copy.copy(named))
        assert named != module.Point(1, others=(3,))
        assert dataclasses.replace(named, x=5) == module.Named(5, name="b", others=(3,))
        assert pickle.loads(pickle.dumps(named)) == named
        assert {named: 1}[copy.deepcopy(named)] == 1
        node = module.Node(7, start=4)
        assert (node.self, node.count) == (7, 4)
        node.below.append(node)
        assert repr(node) == "Node(self=7, below=[...], count=4)"
        assert module.Small() == module.Small(1)
        assert module.Itself(1) != module.Itself(1)


def test_errors_are_what_they_would_be(ours: Any, others: Any) -> None:
    for module in (ours, others):
        with pytest.raises(TypeError, match=r"Point\.__init__\(\) missing 1 required positional argument: 'x'"):
            module.Point()
        with pytest.raises(TypeError, match=r"Named\.__init__\(\) got an unexpected keyword argument 'z'"):
            module.Named(1, z=2)
        point, small = module.Named(1), module.Small()
        for frozen in (point, small):
            with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
                frozen.x = 2
            with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'x'"):
                del frozen.x
        with pytest.raises(TypeError):
            point < module.Point(1)  # noqa: B015
