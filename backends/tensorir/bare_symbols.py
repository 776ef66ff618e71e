"""Lets a call tell each symbol: it stands bare in the shape of a parameter, where the kernel reads it.

A kernel whose parameters all have `b * 4` images, or `b * l` rows, becomes one of so many images or rows:
`A[b * 4, 16], B[b * 8]` -> `A[b_4, 16], B[b_4 * 2]`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any

from tvm import tirx
from tvm.ir import Var
from tvm_ffi.structural import structural_equal

from backends.tensorir.symbols import symbols_of
from fusion.structural import map_nodes

Expr = Any
_MULTIPLES = "fusion.multiples"
"""Attribute of a kernel: of which number each of its symbols is a multiple that is one of more than 1."""


def with_bare_symbols(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return `func` with a symbol for what stands in a shape in place of each that no shape tells alone."""
    for _ in symbols_of(func):
        dims = _hiding(func)
        if not dims:
            break
        func = min(dims, key=lambda dim: (len(dim.hidden), len(dim.factors), dim.multiple)).replaced_in(func)
    return func


def bare_symbols(func: tirx.PrimFunc) -> set[Var]:
    """Return the symbols that a call tells as they stand bare in the shape of a parameter."""
    return {dim for dim in _dims(func) if isinstance(dim, Var)}


def multiples_of(func: tirx.PrimFunc) -> dict[str, int]:
    """Return by name of which number each symbol is known to be a multiple: `b_4` of 4."""
    known = func.attrs.get(_MULTIPLES, {}) if func.attrs else {}
    return {str(name): int(multiple) for name, multiple in known.items()}


@dataclass(frozen=True)
class _Dim:
    """A dimension: `product * multiple + offset`, as `unify` writes it, where `product` is that of `factors`.

    Attributes:
        hidden: Those of the factors that are bare in no shape.
    """

    product: Expr
    multiple: int
    offset: int
    factors: tuple[Var, ...]
    hidden: tuple[Var, ...]

    def replaced_in(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        """Return `func` with a symbol for this dimension, and what that tells in place of the hidden one."""
        name = "_".join([var.name for var in self.factors] + [str(n) for n in (self.multiple, self.offset) if n > 1])
        whole = Var(name, self.product.ty)
        found = whole + -self.offset if self.offset else whole

        def multiplied(node: tirx.Mul) -> Expr:
            if self.multiple == 1 and structural_equal(node, self.product):
                return found
            if not structural_equal(node.a, self.product) or not isinstance(node.b, tirx.IntImm):
                return node
            times, rest = divmod(int(node.b), self.multiple)
            return node if rest else found * times if times > 1 else found

        func = map_nodes(func, (tirx.Mul, multiplied), (tirx.Add, lambda node: self._sum(node, found, whole)))
        if self.multiple > 1 and len(self.factors) > 1:
            part = tirx.floordiv(found, self.multiple)
            func = map_nodes(func, (tirx.Mul, lambda node: part if structural_equal(node, self.product) else node))
        if self.multiple > 1 and not self.offset:
            func = func.with_attr(_MULTIPLES, {**multiples_of(func), name: self.multiple})
        others = [tirx.max(var, 1) for var in self.factors if not var.same_as(self.hidden[0])]
        if len(others) < len(self.factors) - 1 or len(self.hidden) > 1:
            return func  # a square, or a product of which neither factor is known
        divisor = reduce(lambda a, b: a * b, others, tirx.const(self.multiple, "int64"))
        alone = found if self.multiple == 1 and not others else tirx.floordiv(found, divisor)
        return map_nodes(func, (Var, lambda var: alone if var.same_as(self.hidden[0]) else var))

    def _sum(self, node: tirx.Add, found: Expr, whole: Var) -> Expr:
        """Return the new symbol for the dimension itself, which has an offset; other sums as they are."""
        is_replaced = self.multiple > 1 or len(self.factors) > 1
        is_own = structural_equal(node.a, found if is_replaced else self.product)
        return whole if self.offset and is_own and _is_number(node.b, self.offset) else node


def _hiding(func: tirx.PrimFunc) -> list[_Dim]:
    """Return the dimensions of parameters with symbols that no shape tells alone."""
    bare = bare_symbols(func)
    if bare.issuperset(symbols_of(func)):
        return []
    return [dim for dim in (_read(dim, bare) for dim in _dims(func)) if dim.hidden]


def _dims(func: tirx.PrimFunc) -> list[Expr]:
    return [dim for param in func.params if hasattr(param.ty, "shape") for dim in param.ty.shape]


def _read(dim: Expr, bare: set[Var]) -> _Dim:
    """Return what a dimension is; without factors where it is a number or no such product."""
    offset, multiple = 0, 1
    if isinstance(dim, tirx.Add) and isinstance(dim.b, tirx.IntImm):
        dim, offset = dim.a, int(dim.b)
    if isinstance(dim, tirx.Mul) and isinstance(dim.b, tirx.IntImm):
        dim, multiple = dim.a, int(dim.b)
    factors = _factors(dim)
    return _Dim(dim, multiple, offset, factors, tuple(dict.fromkeys(var for var in factors if var not in bare)))


def _factors(product: Expr) -> tuple[Var, ...]:
    if isinstance(product, Var):
        return (product,)
    parts = [_factors(part) for part in (product.a, product.b)] if isinstance(product, tirx.Mul) else [()]
    return tuple(var for part in parts for var in part) if all(parts) else ()


def _is_number(node: Expr, value: int) -> bool:
    return isinstance(node, tirx.IntImm) and int(node) == value
