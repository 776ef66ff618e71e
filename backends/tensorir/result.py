"""The result of scheduling a PrimFunc."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
from tvm import tirx


@dataclass(frozen=True)
class Repack:
    """A new layout of constant arguments that a schedule needs. They are packed at compile time.

    Attributes:
        parameters: The positions of these arguments among the kernel's parameters.
        pack: Old value -> new value.
    """

    parameters: tuple[int, ...]
    pack: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]


@dataclass(frozen=True)
class Scheduled:
    """A scheduled PrimFunc.

    Attributes:
        func: The scheduled PrimFunc, with the parameters of the original, except for the shapes of repacked ones.
        template: The name of the template.
        tile: The loop structure in words, for `explain()`.
        note: The templates that declined before, with their reasons; "" if none did.
        repack: How its callers have to pack constants; None if they need not.
        cycles: The estimated cycles of the slowest thread; 0 if the template has no estimate.
        is_last_resort: Whether no family supports it: it has plain loops, or ones that compute an anchor like any
        stage.
        is_written_out: Whether its loops are as they are to run, so that a compiler need not look for better ones.
    """

    func: tirx.PrimFunc
    template: str
    tile: str
    note: str = ""
    repack: Repack | None = None
    cycles: float = 0.0
    is_last_resort: bool = False
    is_written_out: bool = False


@dataclass(frozen=True)
class Kernel:
    """A PrimFunc before and after scheduling.

    Attributes:
        source: The unscheduled PrimFunc.
        made: The result of scheduling.
        func: The scheduled PrimFunc as it stands in the module: `made.func`, perhaps with `SOURCE`.
    """

    source: tirx.PrimFunc
    made: Scheduled
    func: tirx.PrimFunc
