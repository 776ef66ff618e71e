"""Sums of products become products of matrices, two operands at a time."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from tvm import relax

from fusion.passes.lower_einsum import LowerEinsum
from fusion.shapes import static_shape
from tests.passes.modules import Build, apply, calls, names, normal, unchanged, weight


def einsum(equation: str) -> Build:
    return lambda b, *operands: relax.op.einsum(operands, equation)


@pytest.mark.parametrize(
    ("equation", "left", "right", "expected"),
    [
        ("ij,jk->ik", (3, 4), (4, 5), ["matmul"]),
        ("bhlk,bhtk->bhlt", (2, 3, 5, 4), (2, 3, 6, 4), ["permute_dims", "matmul"]),
        ("bhlt, bhtv -> bhlv", (2, 3, 5, 4), (2, 3, 4, 6), ["matmul"]),
        ("bld,dhk->bhlk", (2, 3, 4), (4, 5, 6), ["reshape", "reshape", "matmul", "reshape", "permute_dims"]),
        ("i,i->", (7,), (7,), ["reshape", "reshape", "matmul", "reshape"]),
        ("ibn,jbn->bij", (3, 2, 4), (5, 2, 4), ["permute_dims", "permute_dims", "matmul"]),
        ("abcd,cdef->abef", (2, 3, 4, 5), (4, 5, 2, 3), ["reshape", "reshape", "matmul", "reshape"]),
        ("kj,ik->ji", (4, 5), (3, 4), ["matmul", "permute_dims"]),
        ("kj,ik->ij", (4, 5), (3, 4), ["matmul"]),
        ("ij,kl->ik", (3, 4), (5, 2), ["sum", "sum", "reshape", "reshape", "multiply"]),
        ("ij,ij->ij", (3, 4), (3, 4), ["multiply"]),
        ("bi,bji->bij", (2, 3), (2, 4, 3), ["reshape", "permute_dims", "multiply"]),
    ],
)
def test_products_of_matrices(equation: str, left: tuple, right: tuple, expected: list[str]) -> None:
    operands = [normal(*left), normal(*right, seed=1)]
    found = names(apply(LowerEinsum(), einsum(equation), operands))
    assert found == expected


@pytest.mark.parametrize(
    ("equation", "shapes", "expected"),
    [
        ("ij,jk,kl->il", [(3, 4), (4, 5), (5, 2)], ["matmul", "matmul"]),
        ("i,i,i->", [(7,)] * 3, ["multiply", "reshape", "reshape", "matmul", "reshape"]),
        (
            "etf,efd,te->td",
            [(2, 5, 4), (2, 4, 6), (5, 2)],
            ["permute_dims", "reshape", "multiply", "permute_dims", "reshape", "reshape", "matmul"],
        ),
        ("bi,bj,bk->ijk", [(2, 3), (2, 4), (2, 5)], None),
        ("ab,bc,cd,da->", [(2, 3), (3, 4), (4, 5), (5, 2)], None),
        ("a,b,c->cab", [(2,), (3,), (4,)], None),
        ("ijx,jk,kly->li", [(3, 4, 2), (4, 5), (5, 2, 3)], None),
    ],
)
def test_many_operands_meet_two_at_a_time(equation: str, shapes: list[tuple], expected: list[str] | None) -> None:
    operands = [normal(*shape, seed=i) for i, shape in enumerate(shapes)]
    found = names(apply(LowerEinsum(), einsum(equation), operands))
    assert "einsum" not in found
    assert expected is None or found == expected


def test_the_cheapest_pair_is_first() -> None:
    """A vector goes through a chain of matrices from its end."""
    shapes = [(30, 40), (40, 50), (50,)]
    made = apply(LowerEinsum(), einsum("ij,jk,k->i"), [normal(*shape) for shape in shapes])
    assert all(prod(static_shape(call)) <= 50 for name, call in calls(made) if name == "matmul")


def test_one_tensor_may_be_several_operands() -> None:
    made = apply(LowerEinsum(), lambda b, x: relax.op.einsum((x, x, x), "ij,ij,ij->i"), [normal(4, 4)])
    assert "einsum" not in names(made)


def test_weights_are_the_right_operand() -> None:
    """Which a kernel has packed before the run."""
    w = weight(6, 4)
    made = apply(LowerEinsum(), lambda b, x: relax.op.einsum((w, x), "ok,bk->ob"), [normal(3, 4)])
    (product,) = (call for name, call in calls(made) if name == "matmul")
    assert static_shape(product.args[1]) == (4, 6)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij->ji", [(3, 4)]),
        ("ii,ij->j", [(3, 3), (3, 4)]),
        ("ij,jk,kk->i", [(3, 4), (4, 5), (5, 5)]),
    ],
)
def test_others_stay(equation: str, shapes: list[tuple]) -> None:
    unchanged(LowerEinsum(), einsum(equation), [normal(*shape, seed=i) for i, shape in enumerate(shapes)])


def test_integers_stay() -> None:
    unchanged(LowerEinsum(), einsum("ij,jk->ik"), [np.ones((2, 3), "int32"), np.ones((3, 2), "int32")])
