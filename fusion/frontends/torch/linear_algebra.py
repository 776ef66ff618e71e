"""Decompositions of what linear algebra asks of small matrices, step by step in float64.

    factors of a [n, n]            for k: exchange rows k and p, the greatest |a[p, k]| of p >= k    none divides by 0
                                       a[i, k] /= a[k, k]; a[i, j] -= a[i, k] a[k, j]                i, j > k
    lower x = b                    for k: x_k = b_k / a[k, k]; b -= a[:, k] x_k                      below k, or above
    cholesky                       for k: l_k = a[:, k] / sqrt(a[k, k]); a -= l_k l_k^T

(Golub and Van Loan, Matrix Computations, 3.1, 3.4, 4.2.) Every step is of all matrices of a batch, and is written out:
of more rows than `_MOST` a program would be too long. Where torch raises as a matrix is singular, or not positive, the
results are infinite or NaN, or huge where a pivot is rounded to no 0, as from its functions that check nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from fusion.declined import Declined
from fusion.frontends.torch.operands import Converter

aten = torch.ops.aten

_MOST = 16
"""Rows of a matrix: inverting 16 takes 161 kernels in 253 calls, and some 12 s of CPU time to compile."""


def _is_small(*matrices: Tensor) -> bool:
    """Return whether steps for these square matrices are written out."""
    first, *_ = matrices
    return all(a.dtype in (torch.float32, torch.float64) for a in matrices) and 0 < first.shape[-1] <= _MOST


@dataclass(frozen=True)
class _Factors:
    """Those of a matrix whose rows were exchanged.

    Attributes:
        both: The upper one with its diagonal, and below it the lower one, whose diagonal is 1.
        pivots: With which row each one was exchanged when it came to it.
        order: Which row of the matrix each row of the factors is.
    """

    both: Tensor
    pivots: Tensor
    order: Tensor

    @property
    def sign(self) -> Tensor:
        """-1 for an odd number of exchanges, else 1."""
        exchanged = (self.pivots != torch.arange(self.pivots.shape[-1])).to(torch.int64).sum(-1)
        return (1 - 2 * (exchanged % 2)).to(torch.float64)

    @property
    def diagonal(self) -> Tensor:
        """That of the upper factor."""
        return torch.diagonal(self.both, 0, -2, -1)

    @property
    def info(self) -> Tensor:
        """As LAPACK tells: 0, or the first row, counted from 1, whose pivot is 0."""
        is_zero = self.diagonal == 0
        return torch.where(is_zero.any(-1), is_zero.to(torch.int32).argmax(-1) + 1, 0).to(torch.int32)

    @property
    def lapack_pivots(self) -> Tensor:
        """The exchanges as LAPACK counts rows, from 1."""
        return (self.pivots + 1).to(torch.int32)

    def solve(self, b: Tensor) -> Tensor:
        """Return x of a x = b, for b [..., n, columns]."""
        ordered = _rows(b, self.order)
        return _substituted(self.both, _substituted(self.both, ordered, upper=False, unit=True), upper=True)


def _rows(a: Tensor, order: Tensor) -> Tensor:
    """Return the rows of each matrix in an order of its own."""
    return torch.gather(a, -2, order.unsqueeze(-1).expand(a.shape))


def _factors(a: Tensor) -> _Factors:
    n = a.shape[-1]
    a, places = a.double(), torch.arange(n)
    rows, columns = places.unsqueeze(1), places.unsqueeze(0)
    order, pivots = places.expand(a.shape[:-1]), list[Tensor]()
    for k in range(n):
        pivot = a[..., k:, k].abs().argmax(-1, keepdim=True) + k
        exchange = torch.where(places == k, pivot, torch.where(places == pivot, k, places))
        a, order = _rows(a, exchange), torch.gather(order, -1, exchange)
        greatest = a[..., k : k + 1, k : k + 1]
        factor = a[..., k : k + 1] / torch.where(greatest == 0, 1.0, greatest)
        eliminated = torch.where(columns > k, a - factor * a[..., k : k + 1, :], torch.where(columns == k, factor, a))
        a = torch.where(rows > k, eliminated, a)
        pivots.append(pivot)
    return _Factors(a, torch.cat(pivots, -1), order)


def _substituted(a: Tensor, b: Tensor, *, upper: bool, unit: bool = False) -> Tensor:
    """Return x of a x = b, of which the triangle of `a` below its diagonal or above it counts; `unit` says that the
    diagonal is 1."""
    n = a.shape[-1]
    places = torch.arange(n).unsqueeze(1)
    solved = [b] * n
    for k in reversed(range(n)) if upper else range(n):
        row = b[..., k : k + 1, :]
        solved[k] = row if unit else row / a[..., k : k + 1, k : k + 1]
        behind = places < k if upper else places > k
        b = torch.where(behind, b - a[..., k : k + 1] * solved[k], b)
    return torch.cat(solved, -2)


def _inverse(a: Tensor, *, check_errors: bool = False) -> Any:
    if not _is_small(a):
        return NotImplemented
    factors = _factors(a)
    unit = torch.eye(a.shape[-1], dtype=torch.float64).expand(a.shape)
    return factors.solve(unit).to(a.dtype), factors.info


def _det(a: Tensor) -> Any:
    if not _is_small(a):
        return NotImplemented
    factors = _factors(a)
    found = factors.diagonal.prod(-1) * factors.sign
    return found.to(a.dtype), factors.both.to(a.dtype), factors.lapack_pivots


def _slogdet(a: Tensor) -> Any:
    if not _is_small(a):
        return NotImplemented
    factors = _factors(a)
    sign = factors.diagonal.sign().prod(-1) * factors.sign
    found = factors.diagonal.abs().log().sum(-1)
    return sign.to(a.dtype), found.to(a.dtype), factors.both.to(a.dtype), factors.lapack_pivots


def _solve(a: Tensor, b: Tensor, *, left: bool = True, check_errors: bool = False) -> Any:
    if not _is_small(a, b):
        return NotImplemented
    is_vector = b.ndim == 1 or (b.ndim + 1 == a.ndim and b.shape == a.shape[:-1])
    right = b.double().unsqueeze(-1) if is_vector else b.double()
    factors = _factors(a if left else a.mT)
    batch = torch.broadcast_shapes(a.shape[:-2], right.shape[:-2])
    right = right if left else right.mT
    columns = right.expand([*batch, *right.shape[-2:]])
    both, order = factors.both.expand([*batch, *a.shape[-2:]]), factors.order.expand([*batch, a.shape[-1]])
    found = _Factors(both, factors.pivots, order).solve(columns)
    found = found if left else found.mT
    found = found.squeeze(-1) if is_vector else found
    return found.to(b.dtype), factors.both.to(a.dtype), factors.lapack_pivots, factors.info


def _factor(a: Tensor, *, pivot: bool = True, check_errors: bool = False) -> Any:
    if not _is_small(a) or not pivot or a.shape[-1] != a.shape[-2]:
        return NotImplemented
    factors = _factors(a)
    return factors.both.to(a.dtype), factors.lapack_pivots, factors.info


def _solve_triangular(a: Tensor, b: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Any:
    if not _is_small(a, b):
        return NotImplemented
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, right = (each.expand([*batch, *each.shape[-2:]]) for each in (a, b))
    if left:
        found = _substituted(a.double(), right.double(), upper=upper, unit=unitriangular)
    else:
        found = _substituted(a.double().mT, right.double().mT, upper=not upper, unit=unitriangular).mT
    return found.to(b.dtype)


def _cholesky(a: Tensor, *, upper: bool = False, check_errors: bool = False) -> Any:
    """The lower triangle alone is read, or the upper one."""
    if not _is_small(a):
        return NotImplemented
    rest, places = (a.mT if upper else a).double(), torch.arange(a.shape[-1]).unsqueeze(1)
    columns, failed = list[Tensor](), list[Tensor]()
    for k in range(a.shape[-1]):
        pivot = rest[..., k : k + 1, k : k + 1]
        failed.append(~(pivot > 0).reshape([*a.shape[:-2], 1]))
        column = torch.where(places >= k, rest[..., k : k + 1] / pivot.sqrt(), 0.0)
        columns.append(column)
        rest = rest - column * column.mT
    found, fails = torch.cat(columns, -1).to(a.dtype), torch.cat(failed, -1)
    info = torch.where(fails.any(-1), fails.to(torch.int32).argmax(-1) + 1, 0).to(torch.int32)
    return found.mT if upper else found, info


RULES = {
    aten.linalg_inv_ex.default: _inverse,
    aten._linalg_det.default: _det,
    aten._linalg_slogdet.default: _slogdet,
    aten._linalg_solve_ex.default: _solve,
    aten.linalg_lu_factor_ex.default: _factor,
    aten.linalg_solve_triangular.default: _solve_triangular,
    aten.linalg_cholesky_ex.default: _cholesky,
}


def _refused(node: fx.Node, importer: Any) -> Any:
    raise Declined(f"its steps are written out for square real matrices of 1 to {_MOST} rows")


CONVERTERS: dict[str, Converter] = {
    f"{op.name().partition('::')[2]}.{op._overloadname}": _refused for op in RULES
}
"""Of what `RULES` leave."""
