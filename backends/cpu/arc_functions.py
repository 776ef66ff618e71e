"""The inverses of sine, cosine and tangent as polynomials; error bounds are as in vector_math.py.

libm's functions, one call for each lane, take 10 ns an element: 100,000 elements of each of the three took 3.1 ms on
two vCPUs of Zen 3.
"""

from __future__ import annotations

from collections.abc import Callable
from math import pi

from tvm import tirx

from backends.cpu.vector_terms import Bind, Expr, f32, horner, with_sign_of


def atan(bind: Bind, x: Expr) -> Expr:
    """atan(x) within 2 ulp: an odd polynomial of |x| up to 1, and of 1 / |x| beyond, which is taken from pi / 2."""
    t = bind(tirx.abs(x))
    beyond = t > f32(1.0)
    z = bind(tirx.Select(beyond, f32(1.0) / t, t))
    s = bind(z * z)
    near = bind(horner(
        s, 2.78569828e-3, -1.58660226e-2, 4.24722321e-2, -7.49753043e-2, 1.06448799e-1, -1.42070308e-1, 1.99934542e-1,
        -3.33331466e-1,
    ) * s * z + z)  # fmt: skip
    return with_sign_of(x, bind(tirx.Select(beyond, f32(pi / 2) - near, near)))


def asin(bind: Bind, x: Expr) -> Expr:
    """asin(x) within 3 ulp: an odd polynomial up to 1/2, and pi/2 - 2 asin(sqrt((1 - |x|) / 2)) beyond."""
    t = bind(tirx.abs(x))
    beyond = t > f32(0.5)
    inner = _inner(bind, t, beyond)
    return with_sign_of(x, bind(tirx.Select(beyond, f32(pi / 2) - f32(2.0) * inner, inner)))


def acos(bind: Bind, x: Expr) -> Expr:
    """acos(x) within 3 ulp: pi/2 - asin(x) up to 1/2, and 2 asin(sqrt((1 - |x|) / 2)), or pi less that, beyond."""
    t = bind(tirx.abs(x))
    beyond = t > f32(0.5)
    inner = _inner(bind, t, beyond)
    double = bind(f32(2.0) * inner)
    far = tirx.Select(x < f32(0.0), f32(pi) - double, double)
    return tirx.Select(beyond, far, f32(pi / 2) - with_sign_of(x, inner))


def _inner(bind: Bind, t: Expr, beyond: Expr) -> Expr:
    """Return asin(z) for z = t, or sqrt((1 - t) / 2) `beyond` 1/2, where it is at most 1/2; NaN beyond 1."""
    square = bind(tirx.Select(beyond, f32(0.5) - f32(0.5) * t, t * t))
    z = bind(tirx.Select(beyond, tirx.sqrt(square), t))
    return bind(horner(square, *_ASIN) * square * z + z)


_ASIN = (4.2163199048e-2, 2.4181311049e-2, 4.5470025998e-2, 7.4953002686e-2, 1.6666752422e-1)
"""Cephes' asinf: asin(z) = z + z^3 p(z^2) for z up to 1/2."""

ARC_FUNCTIONS: dict[str, Callable[[Bind, Expr], Expr]] = {make.__name__: make for make in (atan, asin, acos)}
