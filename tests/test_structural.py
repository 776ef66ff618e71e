"""Walks and rewrites of trees."""

from __future__ import annotations

import pytest
from tvm import tirx
from tvm_ffi.structural import structural_equal

from fusion.structural import contains, find, map_nodes, mutate, walk

X, Y = (tirx.Var(name, "int64") for name in "xy")
TREE = tirx.Add(tirx.Mul(X, Y), tirx.Add(X, tirx.const(3, "int64")))


def test_children_come_first_and_the_first_visit_of_a_kind_is_taken() -> None:
    seen: list[str] = []
    visits = (((tirx.Add, tirx.Mul), lambda node: seen.append(type(node).__name__)), (tirx.Mul, pytest.fail))
    walk(TREE, *visits, (tirx.Var, lambda var: seen.append(str(var.name))))
    assert seen == ["x", "y", "Mul", "x", "Add", "Add"]
    assert [str(var.name) for var in find(TREE, tirx.Var)] == ["x", "y", "x"]


def test_a_search_ends_at_the_first() -> None:
    asked: list[str] = []

    def is_y(var: tirx.Var) -> bool:
        asked.append(str(var.name))
        return bool(var.same_as(Y))

    assert contains(TREE, (tirx.Var, is_y))
    assert asked == ["x", "y"]
    assert not contains(TREE, (tirx.Sub, lambda node: True))


def test_nodes_are_replaced() -> None:
    doubled = map_nodes(TREE, (tirx.Var, lambda var: var * 2))
    assert structural_equal(doubled, tirx.Add(tirx.Mul(X * 2, Y * 2), tirx.Add(X * 2, tirx.const(3, "int64"))))


def test_a_rule_decides_about_the_children() -> None:
    rules = [(tirx.Mul, lambda node, mutator: node), (tirx.Var, lambda var, mutator: Y)]
    assert structural_equal(mutate(TREE, rules), tirx.Add(TREE.a, tirx.Add(Y, tirx.const(3, "int64"))))


def test_errors_of_callbacks_come_out_as_they_are() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        walk(TREE, (tirx.Var, lambda var: int(var.name)))


@pytest.mark.parametrize("kind", [tirx.Add, tirx.Mul])
def test_errors_behind_a_replaced_child_leave_the_memory_whole(kind: type) -> None:
    """tvm_ffi freed it twice, and the process ended somewhere behind."""

    def fails(node: object) -> object:
        raise ValueError("no such node")

    for _ in range(1000):
        with pytest.raises(ValueError, match="no such node"):
            map_nodes(TREE, (tirx.Var, lambda var: var + 1), (kind, fails))
