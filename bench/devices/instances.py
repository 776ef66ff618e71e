"""Exact plans of random small problems against the best of all plans."""

from __future__ import annotations

import math

from bench.devices.brute_force import best_seconds
from bench.devices.draw import draw_problem
from fusion.declined import Declined
from placement.methods.exact import ExactProgram
from placement.problem import OBJECTIVES

_TOLERANCE = 1e-5
"""HiGHS proves optima to 1e-6."""


def first_difference(count: int) -> str:
    """Return where the first of `count` problems of up to ten tasks has a better plan than the exact one, or ""."""
    for seed in range(count):
        problem = draw_problem(seed)
        for objective in OBJECTIVES:
            best = best_seconds(problem, objective)
            try:
                found = ExactProgram(seconds=60.0).find(problem, objective).plan.seconds
            except Declined:
                found = math.inf
            if found != best and abs(found - best) > _TOLERANCE * best:
                return f"seed {seed}, {objective}: the exact plan takes {found}, the best of all {best}"
    return ""
