"""Times that no plan can be below, without solving anything exactly."""

from __future__ import annotations

import numpy as np

from placement.problem import LATENCY, PlacementProblem
from placement.segments import Segment, segment_problem, segments_of, shortest_ends

_ROUNDS = 400
"""Steps of the subgradient method; on 3 to 16 devices the bound is then within 0.1% of the linear program's."""


def lower_bound(problem: PlacementProblem, objective: str) -> float:
    """Return seconds that no plan of the objective is below."""
    if not len(problem.tasks):
        return 0.0
    area = area_bound(problem)
    if objective != LATENCY:
        return max(area, _largest_task(problem))
    return max(area, float(path_bounds(problem).max()), segments_bound(problem))


def _largest_task(problem: PlacementProblem) -> float:
    return max(min(seconds) for seconds in problem.seconds)


def segments_bound(problem: PlacementProblem) -> float:
    """Return the bound on the latency that is the shortest path over segments, each with the bounds of its own."""
    segments = segments_of(problem)
    if len(segments) < 2:
        return 0.0
    return float(shortest_ends([segment_bounds(problem, each) for each in segments])[-1].min())


def segment_bounds(problem: PlacementProblem, segment: Segment) -> np.ndarray:
    """Return times that no plan of a segment is below, from the device of its entry (row) to that of its end."""
    has_entry, has_end = segment.entry >= 0, segment.exit < len(problem.tasks)
    parts = [segment_problem(problem, segment, k) for k in (problem.devices if has_entry else [None])]
    seconds = np.array(parts[0].seconds)
    between = seconds[int(has_entry) : len(seconds) - has_end]
    area = _area(between) if len(between) > 1 else 0.0
    if has_end:
        ends: np.ndarray = np.array([np.maximum(heads(part)[-1], area) for part in parts]) + seconds[-1]
        return ends
    return np.array([[max(area, (heads(part) + np.array(part.seconds)).min(axis=1).max())] for part in parts])


def path_bounds(problem: PlacementProblem) -> np.ndarray:
    """Return for each task the least time of any plan in which its most expensive path alone takes its time, with
    copies: HEFT's critical path, where each task runs on the device that is best for the path."""
    seconds = np.array(problem.seconds)
    both: np.ndarray = (heads(problem) + seconds + tails(problem)).min(axis=1)
    return both


def tails(problem: PlacementProblem) -> np.ndarray:
    """Return the least time from the end of each task, run on each device, to that of the last which needs it: the
    optimistic cost table of PEFT (Arabnejad, Barbosa 2014)."""
    seconds, found = np.array(problem.seconds), np.zeros((len(problem.tasks), len(problem.devices)))
    latency, per_byte = np.array(problem.latency), np.array(problem.per_byte)
    for task in reversed(problem.tasks):
        for consumer, size in problem.consumers[task]:
            rest = (latency + size * per_byte + seconds[consumer] + found[consumer]).min(axis=1)
            np.maximum(found[task], rest, out=found[task])
    return found


def heads(problem: PlacementProblem) -> np.ndarray:
    """Return the least time until each task can start on each device."""
    seconds, found = np.array(problem.seconds), np.zeros((len(problem.tasks), len(problem.devices)))
    latency, per_byte = np.array(problem.latency).T, np.array(problem.per_byte).T
    for task in problem.tasks:
        for producer, size in problem.producers[task]:
            before = (latency + size * per_byte + seconds[producer] + found[producer]).min(axis=1)
            np.maximum(found[task], before, out=found[task])
    return found


def area_bound(problem: PlacementProblem) -> float:
    """Return the time in which the devices could do all work if tasks could be divided and copies took nothing.

    It is the linear program min max_k sum_i p_ik x_ik; by duality any prices w_k >= 0 with sum 1 give the bound
    sum_i min_k w_k p_ik, and the best prices are approached by multiplicative weights.
    """
    return _area(np.array(problem.seconds))


def _area(seconds: np.ndarray) -> float:
    """Return that bound on the work of some tasks, rows, on each device."""
    devices = seconds.shape[1]
    prices = np.full(devices, 1.0 / devices)
    best, average = 0.0, np.zeros(devices)
    for step in range(1, _ROUNDS + 1):
        bound, load = _priced(seconds, prices)
        best = max(best, bound)
        prices = prices * np.exp((load / max(load.max(), 1e-300) - 1.0) * (1.0 / np.sqrt(step)))
        prices /= prices.sum()
        average += prices
    return max(best, _priced(seconds, average / average.sum())[0])


def _priced(seconds: np.ndarray, prices: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the bound at `prices`, and the load of each device if each task takes its cheapest."""
    priced = seconds * np.maximum(prices, 1e-12)
    cheapest = priced.argmin(axis=1)
    rows = np.arange(len(seconds))
    load = np.bincount(cheapest, weights=seconds[rows, cheapest], minlength=seconds.shape[1])
    return float(priced[rows, cheapest].sum() / np.maximum(prices, 1e-12).sum()), load
