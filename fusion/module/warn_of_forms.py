"""Warns of a module that is compiled for ever more shapes."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence

from fusion.errors import ManyFormsWarning

_PACKAGE = "fusion"


def warn_of_forms(shapes: Sequence[str], kept: int) -> None:
    """Warn that a model is compiled for the last of `shapes`, of which a module keeps the forms for `kept`."""
    *before, last = shapes
    warnings.warn(
        f"the model is compiled for input shape number {len(shapes)}, {last} (before: {'; '.join(before)}). Each "
        f"takes as long as the first, and the last {kept} are kept. Pad the inputs to a few sizes, or give shapes= "
        "where only one occurs",
        ManyFormsWarning,
        stacklevel=_levels_inside(),
    )


def _levels_inside() -> int:
    """Return how many calls up the code is that called this package, for whom the warning is."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        frame, level = frame.f_back, level + 1
    return level
