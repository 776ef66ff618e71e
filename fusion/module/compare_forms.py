"""Times a form for one shape beside the form for all sizes that runs the shape meanwhile."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from fusion.errors import FusionError
from fusion.module.random_inputs import random_inputs
from fusion.module.specialization import Specialization
from fusion.system.abandon import checkpoint

_TURNS = 9
"""Calls of each form at most; the fastest counts, as others compute beside them."""
_LEAST_TURNS = 3
_BUDGET_S = 0.5
"""After so long there are no more turns than the least."""
_TOLD_APART = 1.05
"""How many times as long the form may take: the fastest of a few calls tells no less apart on a busy machine."""


@dataclass(frozen=True)
class FormTimes:
    """What a call takes.

    Attributes:
        own_s: Seconds of the form for the shape.
        open_s: Seconds of the one for all sizes.
    """

    own_s: float
    open_s: float

    @property
    def is_slower(self) -> bool:
        """Whether the form is not worth having."""
        return self.own_s > _TOLD_APART * self.open_s

    def __str__(self) -> str:
        return f"{self.own_s * 1e3:.3g} ms, where the form for all sizes takes {self.open_s * 1e3:.3g}"


def compare_forms(own: Specialization, opened: Specialization) -> FormTimes | None:
    """Return the times of calls with random inputs, by turns; None where the model refuses these inputs.

    Raises:
        Abandoned: The calling thread is to end, or to give way.
    """
    drawn = random_inputs(own.inputs)
    arrays = [drawn[spec.name] for spec in own.inputs]
    forms, check = (own, opened), checkpoint()
    try:
        for form in forms:
            form.program.run(arrays)
        started, found = time.perf_counter(), list[list[float]]()
        while len(found) < _LEAST_TURNS or (len(found) < _TURNS and time.perf_counter() - started < _BUDGET_S):
            check()
            found.append([_timed(form, arrays) for form in forms])
    except FusionError:
        return None
    own_s, open_s = (min(times) for times in zip(*found, strict=True))
    return FormTimes(own_s, open_s)


def _timed(form: Specialization, arrays: list[np.ndarray]) -> float:
    started = time.perf_counter()
    form.program.run(arrays)
    return time.perf_counter() - started
