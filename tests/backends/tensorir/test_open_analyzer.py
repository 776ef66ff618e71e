"""Indices in which symbols divide."""

from __future__ import annotations

import pytest
from tvm import tirx
from tvm.ir import Range, Var
from tvm_ffi.structural import structural_equal

from backends.tensorir.extents import difference, is_at_most, is_same, is_within, sizes_of, typical
from backends.tensorir.open_analyzer import OpenAnalyzer

b, n, i, j, p, unknown = (Var(name, "int64") for name in ("b", "n", "i", "j", "p", "unknown"))


@pytest.fixture
def analyzer() -> OpenAnalyzer:
    made = OpenAnalyzer()
    for var, extent in ((i, b), (j, n), (p, b * 6 * n * 64)):
        made.bind(var, Range.from_min_extent(tirx.const(0, "int64"), extent))
    return made


@pytest.mark.parametrize(
    ("index", "simple"),
    [
        ((i * n + j) // n, i),
        ((i * n + j) % n, j),
        ((i * n + j) % (b * n), i * n + j),
        ((i * n + j) % (b * n) // n, i),
        (i * n * 4 // n, i * 4),
        (((j // n // b) * b + j // n % b) * n + j % n, j),
        (i // n * n * 8 + j + i % n * 8, i * 8 + j),
        ((i * b + p // 64 // n // 6) // b, i),
        ((i * b + p // 64 // n // 6) % b, p // 64 // n // 6),
    ],
)
def test_divisions_by_symbols_go(analyzer: OpenAnalyzer, index: tirx.PrimExpr, simple: tirx.PrimExpr) -> None:
    assert structural_equal(analyzer.simplify(index), simple)


@pytest.mark.parametrize(
    "index", [(i * n + j + 1) // n, (i * n + unknown) // n, j // b, (i * n - j) // n, (i * b + p // 64 // 6) // b]
)
def test_what_may_reach_the_divisor_stays(analyzer: OpenAnalyzer, index: tirx.PrimExpr) -> None:
    assert isinstance(analyzer.simplify(index), tirx.FloorDiv | tirx.Add)
    assert not structural_equal(analyzer.simplify(index), i)


def test_extents_with_symbols() -> None:
    assert is_same(b * n * 4, 4 * n * b)
    assert not is_same(b, n)
    assert is_within(1, n, n + 1)
    assert not is_within(1, n, n)
    assert is_at_most(n + 1, 2 * n + b + 1)
    assert not is_at_most(b, n)
    assert not is_at_most(n + 1, 2 * n)
    assert difference(n + 1, n) == 1
    assert typical(b * n) == typical(b) ** 2
    assert sizes_of(b * n, b) == [typical(b)] * 2
    assert sizes_of(b, b * n) == [1, typical(b)]
