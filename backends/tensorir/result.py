"""What a template makes of a PrimFunc: a kernel with loops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
from tvm import tirx


@dataclass(frozen=True)
class Repack:
    """A change to constants that a kernel is called with, made before the run.

    Attributes:
        parameters: Their positions among the kernel's parameters.
        pack: Old value to new.
    """

    parameters: tuple[int, ...]
    pack: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]


@dataclass(frozen=True)
class Scheduled:
    """A PrimFunc with its final loops.

    Attributes:
        func: Same parameters as the input, but for the shapes of those that are repacked.
        template: Name of the template that made it.
        tile: The loop structure in words, for `explain`.
        note: Which better templates did not take the function, and why; empty where the first one did.
        repack: What its callers have to do to constants.
        cycles: What the template estimates the slowest thread to take; 0 where it has no estimate.
        is_last_resort: Whether these are plain loops, or compute anchors as any other stage: no family took it.
    """

    func: tirx.PrimFunc
    template: str
    tile: str
    note: str = ""
    repack: Repack | None = None
    cycles: float = 0.0
    is_last_resort: bool = False


@dataclass(frozen=True)
class Kernel:
    """A PrimFunc before and after it got its loops.

    Attributes:
        func: With them, as modules get it.
    """

    source: tirx.PrimFunc
    made: Scheduled
    func: tirx.PrimFunc
