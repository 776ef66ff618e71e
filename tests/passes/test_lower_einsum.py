"""Sums of products that are products of matrices become such; all others stay."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from fusion.passes.lower_einsum import LowerEinsum
from tests.passes.modules import Build, apply, names, normal, unchanged


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
        ("kj,ik->ji", (4, 5), (3, 4), ["permute_dims", "permute_dims", "matmul"]),
    ],
)
def test_products_of_matrices(equation: str, left: tuple, right: tuple, expected: list[str]) -> None:
    operands = [normal(*left), normal(*right, seed=1)]
    found = names(apply(LowerEinsum(), einsum(equation), operands))
    assert found == expected


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij->ji", [(3, 4)]),
        ("ij,jk,kl->il", [(3, 4), (4, 5), (5, 2)]),
        ("ii,ij->j", [(3, 3), (3, 4)]),
        ("ij,kl->ik", [(3, 4), (5, 2)]),
        ("ij,ij->ij", [(3, 4), (3, 4)]),
    ],
)
def test_what_is_no_product_stays(equation: str, shapes: list[tuple]) -> None:
    unchanged(LowerEinsum(), einsum(equation), [normal(*shape, seed=i) for i, shape in enumerate(shapes)])


def test_integers_stay() -> None:
    unchanged(LowerEinsum(), einsum("ij,jk->ik"), [np.ones((2, 3), "int32"), np.ones((3, 2), "int32")])
