"""A rewrite as data: what it replaces by what, when not, where it comes from, and an example that runs as a test."""

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
    """One rewrite, applied where it pays (`GraphCost.pays_against`).

    Attributes:
        form: What becomes what.
        source: Where it is from.
        assumes: What has to hold for the results to agree but for rounding.
        roots: Operators whose results it replaces.
        match: Returns what `build` needs to know, or None where the graph looks otherwise.
        build: Emits the replacement and returns it.
        example: Where it applies.
        near_miss: Where it must not.
        declines: Part of the reason that the near miss is declined for; "" where its pattern does not match or it
            would not pay.
        measured: For a rule that is applied although the cost does not fall, the measurement that says why.
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
    measured: str = ""
