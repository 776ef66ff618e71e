"""Linear algebra of small matrices, against torch: those that need their rows exchanged, batches, singular ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import fusion
from fusion.errors import UnsupportedOperatorError

torch = pytest.importorskip("torch")
linalg = torch.linalg

from tests.frontends.test_torch_operators import Cases, Family, _agree, _values  # noqa: E402 - they need torch

EXCHANGED = torch.tensor([[0.0, 2.0, 1.0], [1e-6, 3.0, -2.0], [4.0, 0.5, 0.0]])
"""Without exchanges of rows, the first would divide by 0, and the second by next to nothing."""

BATCH = torch.stack([EXCHANGED, EXCHANGED.flip(0), _values(3, 3, seed=5)])
SIDES = _values(3, 2, seed=6)


def test_inverses_and_determinants() -> None:
    cases: Cases = {
        "inverses": lambda a, b: torch.inverse(a),
        "determinants": lambda a, b: linalg.det(a),
        "determinant of one": lambda a, b: linalg.det(a[0, :1, :1] + 3),
        "signs": lambda a, b: linalg.slogdet(a)[0],
        "logarithms": lambda a, b: linalg.slogdet(a)[1],
        "factors": lambda a, b: linalg.lu_factor(a)[0],
        "pivots": lambda a, b: linalg.lu_factor(a)[1],
    }
    _agree(cases, (BATCH, SIDES))


def test_solutions() -> None:
    """All but one of two rows: operators are as many as the cube of that."""

    def two(a: Any) -> Any:
        return a[0, ..., :2, :2]

    stacked = torch.stack([BATCH, BATCH.mT]).contiguous()
    cases: Cases = {
        "matrix": lambda a, b: linalg.solve(two(a)[0], b[:2]),
        "vector": lambda a, b: linalg.solve(two(a)[0], b[:2, 0]),
        "of one for many": lambda a, b: linalg.solve(two(a)[0], two(a)),
        "of many for one": lambda a, b: linalg.solve(a, b),
        "of many for many": lambda a, b: linalg.solve(two(a)[:2, None], two(a)),
        "from the right": lambda a, b: linalg.solve(two(a), b[:2].mT, left=False),
        "of float64": lambda a, b: linalg.solve(two(a)[0].double(), b[:2].double()),
    }
    _agree(cases, (stacked, SIDES))


def test_triangles_and_roots() -> None:
    def positive(a: Any) -> Any:
        return a @ a.mT + torch.eye(3)

    cases: Cases = {
        **{
            f"upper={upper} left={left} unit={unit}": lambda a, b, upper=upper, left=left, unit=unit: (
                linalg.solve_triangular(
                    a + 3 * torch.eye(3), b if left else b.mT, upper=upper, left=left, unitriangular=unit
                )
            )
            for upper in (False, True)
            for left in (False, True)
            for unit in (False, True)
        },
        "roots": lambda a, b: linalg.cholesky(positive(a)),
        "upper root": lambda a, b: linalg.cholesky(positive(a), upper=True),
        "of half a matrix": lambda a, b: linalg.cholesky_ex(positive(a).tril())[0],
        "of the other half": lambda a, b: linalg.cholesky_ex(positive(a).triu(), upper=True)[0],
    }
    _agree(cases, (BATCH, SIDES))


def test_in_float64() -> None:
    _agree({"inverse": linalg.inv}, (_values(5, 5, seed=7).double(),), 1e-12)


def test_singular_matrices() -> None:
    """Of which torch's own functions that check tell nothing but that they are. Their factors are powers of 2, by rows
    and by columns: what is rounded makes the last pivot 0 on one CPU and not on another, in torch."""
    a = torch.stack([torch.zeros(3, 3), torch.tensor([[1.0, 2, 4], [2, 4, 8], [1, 0, 1]]), torch.eye(3)])
    cases: Cases = {
        "determinant": linalg.det,
        "sign": lambda a: linalg.slogdet(a)[0],
        "logarithm": lambda a: linalg.slogdet(a)[1],
        "factors": lambda a: linalg.lu_factor_ex(a)[0],
        "found": lambda a: linalg.lu_factor_ex(a).info,
        "not positive": lambda a: linalg.cholesky_ex(a - 2 * torch.eye(3)).info,
    }
    _agree(cases, (a,))
    (inverse,) = fusion.compile((Family({"y": linalg.inv}), (a,)))(a)
    assert not any(math.isfinite(value) for value in inverse[0].flat)
    assert not all(math.isfinite(value) for value in inverse[1].flat)
    assert (inverse[2] == torch.eye(3).numpy()).all()


@pytest.mark.parametrize(
    "case", [linalg.inv, linalg.det, lambda a: linalg.solve(a, a), lambda a: linalg.cholesky(a @ a.mT)]
)
def test_larger_ones_are_refused(case: Callable[..., Any]) -> None:
    with pytest.raises(UnsupportedOperatorError) as raised:
        fusion.compile((Family({"y": case}), (_values(17, 17),)))
    assert "1 to 16 rows" in raised.value.why
