"""Decompositions of operators of complex numbers into those of their real and imaginary parts.

What they take apart by `view_as_real` and put together by `complex` is left to `SplitComplex`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

aten = torch.ops.aten
Product = Callable[[Any, Any], Any]


class _Parts(NamedTuple):
    """The parts of a number or of a tensor; `imag` is None of a real one."""

    real: Any
    imag: Any


def _is_complex(value: Any) -> bool:
    return isinstance(value, complex) or (isinstance(value, Tensor) and value.is_complex())


def parts(value: Any) -> _Parts:
    """Return the parts of a number or of a tensor."""
    if isinstance(value, complex):
        return _Parts(value.real, value.imag)
    if not _is_complex(value):
        return _Parts(value, None)
    pairs = torch.view_as_real(value)
    return _Parts(pairs[..., 0], pairs[..., 1])


def _joined(real: Any, imag: Any) -> Tensor:
    """Return the complex tensor of two parts of any dtypes and shapes that broadcast, of which one is a tensor."""
    dtype = torch.result_type(real, imag)
    real, imag = (
        part.to(dtype) if isinstance(part, Tensor) else torch.full((), part, dtype=dtype) for part in (real, imag)
    )
    return torch.complex(real, imag)


def _multiplied(left: Any, right: Any, product: Product) -> Any:
    (a, b), (c, d) = parts(left), parts(right)
    if d is None:
        return _joined(product(a, c), product(b, c))
    if b is None:
        return _joined(product(a, c), product(a, d))
    return _joined(product(a, c) - product(b, d), product(a, d) + product(b, c))


def _product_by(product: Product) -> Callable[[Any, Any], Any]:
    def rule(left: Any, right: Any) -> Any:
        is_complex = _is_complex(left) or _is_complex(right)
        return _multiplied(left, right, product) if is_complex else NotImplemented

    return rule


def _add(left: Any, right: Any, *, alpha: Any = 1) -> Any:
    if not any(map(_is_complex, (left, right, alpha))):
        return NotImplemented
    (a, b), (c, d) = parts(left), parts(right if alpha == 1 else right * alpha)
    if b is None or d is None:
        return _joined(a + c, d if b is None else b)
    return _joined(a + c, b + d)


def _sub(left: Any, right: Any, *, alpha: Any = 1) -> Any:
    if not any(map(_is_complex, (left, right, alpha))):
        return NotImplemented
    (a, b), (c, d) = parts(left), parts(right if alpha == 1 else right * alpha)
    if b is None or d is None:
        return _joined(a - c, -d if b is None else b)
    return _joined(a - c, b - d)


def _div(left: Any, right: Any) -> Any:
    """A divisor is scaled to a larger part of 1, as its square may be beyond float32."""
    if not (_is_complex(left) or _is_complex(right)):
        return NotImplemented
    (a, b), (c, d) = parts(left), parts(right)
    if d is None:
        return _joined(a / c, b / c)
    if isinstance(right, complex):
        return left * (1 / right)
    scale = torch.maximum(c.abs(), d.abs())
    c, d = c / scale, d / scale
    square = (c * c + d * d) * scale
    if b is None:
        return _joined(a * c / square, -a * d / square)
    return _joined((a * c + b * d) / square, (b * c - a * d) / square)


def _reciprocal(x: Tensor) -> Any:
    return 1 / x if x.is_complex() else NotImplemented


def _abs(x: Tensor) -> Any:
    return torch.hypot(*parts(x)) if x.is_complex() else NotImplemented


def _angle(x: Tensor) -> Any:
    if not x.is_complex():
        return NotImplemented
    real, imag = parts(x)
    return torch.atan2(imag, real)


def _polar(length: Tensor, angle: Tensor) -> Tensor:
    return torch.complex(length * torch.cos(angle), length * torch.sin(angle))


def _exp(x: Tensor) -> Any:
    if not x.is_complex():
        return NotImplemented
    real, imag = parts(x)
    return torch.polar(torch.exp(real), imag)


RULES = {
    aten.mul.Tensor: _product_by(torch.mul),
    aten.mm.default: _product_by(torch.mm),
    aten.bmm.default: _product_by(torch.bmm),
    aten.matmul.default: _product_by(torch.matmul),
    aten.add.Tensor: _add,
    aten.sub.Tensor: _sub,
    aten.div.Tensor: _div,
    aten.reciprocal.default: _reciprocal,
    aten.abs.default: _abs,
    aten.angle.default: _angle,
    aten.polar.default: _polar,
    aten.exp.default: _exp,
}
