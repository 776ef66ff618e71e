"""A rewrite rule as data: pattern, guard, replacement, source, and examples that run as tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tvm import relax

from fusion.rewrites.graph import Emit, Value

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Example:
    """A `main`: `build(builder, *inputs)` returns what it computes, from float32 inputs of these shapes."""

    build: Callable[..., relax.Expr]
    shapes: tuple[Shape, ...]


def scalar(value: float) -> relax.Constant:
    """Return a float32 of rank 0, for an example."""
    return relax.const(np.float32(value))


def normal(*shape: int) -> relax.Constant:
    """Return a float32 constant for an example, drawn from a normal distribution; the same for the same shape."""
    return relax.const(np.random.default_rng(list(shape)).standard_normal(shape).astype("float32"))


@dataclass(frozen=True)
class Rule:
    """A rewrite, applied where it pays (`GraphCost.pays_against`), or for a reason of its own.

    Attributes:
        name: The name in logs and in docs/rewrites.md.
        form: The rewrite as text: before -> after.
        source: The paper or compiler that it is from.
        assumes: What has to hold for the results to agree up to rounding.
        roots: The operators whose results it replaces.
        match: Root -> what `build` needs; None if the pattern does not match. Raises `Declined` if a guard fails.
        build: (emit, root, match) -> the replacement. May raise `Declined` too.
        example: A graph to which it applies.
        near_miss: A graph that is almost the same, to which it must not apply.
        declines: A part of the reason for which the near miss is declined; "" if its pattern does not match, or the
            rewrite would not pay.
        despite_cost: For a rule that applies although the cost may not fall: the reason, as a measurement.
    """

    name: str
    form: str
    source: str
    assumes: str
    roots: frozenset[str]
    match: Callable[[Value], Any]
    build: Callable[[Emit, Value, Any], relax.Expr] = field(repr=False)
    example: Example = field(repr=False)
    near_miss: Example = field(repr=False)
    declines: str = ""
    despite_cost: str = ""
