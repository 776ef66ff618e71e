"""The sizes that a torch program was traced for: its symbols, their ranges, and what its trace asked of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fusion.declined import Declined

_TRACED_FROM = 2
"""The least size of what torch traces as a symbol: 0 and 1 are numbers to it."""
Sizes = dict[Any, int]


@dataclass(frozen=True)
class TracedSizes:
    """What torch knows of the open sizes of a program.

    Attributes:
        dims: Of each input that is a tensor, its extents: numbers and formulas.
        env: The guards, and the range of each symbol.
    """

    dims: tuple[tuple[Any, ...], ...]
    env: Any

    @classmethod
    def of(cls, program: Any) -> TracedSizes:
        """Return those of a program of which some sizes are open."""
        given = {spec.arg.name for spec in program.graph_signature.input_specs if spec.kind.name == "USER_INPUT"}
        values = [node.meta.get("val") for node in program.graph.nodes if node.name in given]
        shapes = [value.shape for value in values if isinstance(value, torch.Tensor)]
        opened = next(dim for shape in shapes for dim in shape if isinstance(dim, torch.SymInt))
        return cls(tuple(tuple(map(formula, shape)) for shape in shapes), opened.node.shape_env)

    def at(self, shapes: Sequence[Sequence[int]]) -> Sizes:
        """Return the size of each symbol where the inputs have these `shapes`.

        Raises:
            Declined: They have none.
        """
        pairs = [pair for each in zip(self.dims, shapes, strict=True) for pair in zip(*each, strict=True)]
        # One of two symbols that are equal has the other in its place.
        dims = [(dim if isinstance(dim, int) else self.env.replace(dim), size) for dim, size in pairs]
        sizes = dict(_solved(dim, size) for dim, size in dims if not isinstance(dim, int))
        if any(extent(dim, sizes) != size for dim, size in dims):
            raise Declined("it was traced for other shapes")
        return sizes

    def broken(self, sizes: Sizes) -> Iterator[str]:
        """Yield what the trace took for granted and is not so at `sizes`, as far as these tell it; what divides by 0
        there is not."""
        for guard in self.env.guards:
            try:
                found = self.env.replace(guard.expr).xreplace(sizes)
            except ZeroDivisionError:
                found = False
            if found in (False,):  # sympy's own, which no `is` finds
                yield str(guard.expr)

    def outside(self, sizes: Sizes) -> Iterator[str]:
        """Yield which of `sizes` are beyond those of the trace. A size of 1 makes the operators of 2 and more where all
        shapes are what their formulas say; which has to be seen."""
        for symbol, size in sizes.items():
            taken = self.env.var_to_range[symbol]
            if not (size == 1 and taken.lower == _TRACED_FROM) and not taken.lower <= size <= taken.upper:
                yield f"it was traced for sizes from {taken.lower} to {taken.upper}"


def formula(dim: Any) -> Any:
    """Return an extent as a number or sympy's formula."""
    return dim.node.expr if isinstance(dim, torch.SymInt) else dim


def extent(dim: Any, sizes: Sizes) -> int:
    """Return the number that a formula is at `sizes`."""
    return dim if isinstance(dim, int) else int(dim.xreplace(sizes))


def _solved(dim: Any, size: int) -> tuple[Any, int]:
    """Return the symbol of a formula such as `4 * height`, and its size where the formula has the given one.

    Raises:
        Declined: It is of several symbols, or of none, or as large at 1 as at 0.
    """
    if len(dim.free_symbols) != 1:
        raise Declined("a size was traced as one number, or follows from several")
    (symbol,) = dim.free_symbols
    constant = dim.xreplace({symbol: 0})
    step = dim.xreplace({symbol: 1}) - constant
    if step == 0:
        raise Declined("a size was traced as what a division leaves")
    return symbol, int((size - constant) / step)
