"""What is known of a kernel without running it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class KernelInfo:
    """One kernel of a compiled module.

    Attributes:
        name: Symbol of its PrimFunc.
        ops: Operators it computes, in order.
        template: The schedule that made it.
        tile: The tile that schedule chose, as text.
        flops: Floating-point operations of one call; 0 where a shape is symbolic.
        bytes: Bytes it must at least read and write in one call; 0 where a shape is symbolic.
    """

    name: str
    ops: tuple[str, ...]
    template: str
    tile: str
    flops: int
    bytes: int
