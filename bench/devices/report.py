"""The plans as tables and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import partial

from bench import markdown
from bench.devices.measure import PlanResult
from placement.choose import BASELINES
from placement.problem import OBJECTIVES

_HEADER = (
    "network", "batch", "operators", *(method.name for method in BASELINES), "placed", "its bound", "gap", "plan", "by",
    "bound", "gap", "x baseline, placed", "x baseline", "x fastest", "at most x", "planning s", "more s", "HiGHS",
    "its bound", "placed, above it", "solved", "HiGHS s", "x planning",
)  # fmt: skip


def line(result: PlanResult) -> str:
    """Return one result in a line."""
    ratios = ", ".join(f"{ratio(result):.2f}" for ratio in _RATIOS)
    us, bound, above, solved, seconds, times = _exact(result)
    state = "solved" if solved == "yes" else f"ended, its bound {bound}"
    exact = f"; HiGHS: {us} us ({state}; placed is {above} above) in {seconds} s, {times}x planning" if us else ""
    return (
        f"{result.network} x {result.batch}, {result.objective}: {_us(result.plan)} us by {result.method}"
        f" (ratios: {ratios}; CPU s: {result.planning:.1f}, {result.more:.1f}{exact})"
    )


def text(results: Sequence[PlanResult]) -> str:
    """Return the report as Markdown: a table for each objective."""
    parts = [
        "Microseconds: of one request (latency), between two requests (throughput). placed = each operator on one "
        "device; plan = also with the images of a request divided, or with several placements for the requests of a "
        "stream. x baseline = best simple method / plan; at most x = best simple method / bound, which no plan can "
        "exceed.",
    ]
    for objective in OBJECTIVES:
        found = [result for result in results if result.objective == objective]
        if found:
            parts += [
                f"## {objective.capitalize()}",
                markdown.table(_HEADER, [*map(_row, found), _means(found)]),
                "Best simple method / what each method found, geometric means; where a plan was proven to be the best "
                "before a method's turn, that plan:",
                markdown.table(_by_batch(found), list(_attempts(found))),
            ]
    parts += [
        "## One simple method for all",
        "What each simple method found / plan, geometric means over all objectives: what plans gain over a user's one "
        "method, where the tables above have the best one for each network. Where a plan was proven to be the best "
        "before a method's turn, that plan counts as found.",
        markdown.table(_by_batch(results), list(_over_each(results))),
        "## Why not more",
        "longest path = with its copies, on the devices that are best for it: no call is faster. all work = divided at "
        "will, without copies: no stream is faster. dear = results whose copy to another device takes longer than the "
        "kernel that makes them.",
        markdown.table(_GRAIN, [_grain_row(result) for result in _one_each(results)]),
    ]
    return "\n\n".join(parts) + "\n"


def _us(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e6:.0f}"


def _row(result: PlanResult) -> markdown.Row:
    return (
        result.network,
        str(result.batch),
        str(result.operators),
        *(_us(result.found.get(method.name)) for method in BASELINES),
        _us(result.placed),
        _us(result.placed_bound),
        _gap(result.placed, result.placed_bound),
        _us(result.plan),
        result.method,
        _us(result.bound),
        _gap(result.plan, result.bound),
        *(f"{ratio(result):.2f}" for ratio in _RATIOS),
        f"{result.planning:.1f}",
        f"{result.more:.1f}",
        *_exact(result),
    )


def _exact(result: PlanResult) -> tuple[str, ...]:
    """Return the cells of HiGHS, which are empty where it found nothing or was not asked."""
    if result.exact is None:
        return ("",) * 6
    return (
        _us(result.exact),
        _us(result.proven),
        _gap(result.placed, result.exact),
        "yes" if result.is_solved else "no",
        f"{result.solving:.1f}",
        f"{result.solving / result.planning:.0f}",
    )


def _gap(plan: float, bound: float) -> str:
    return f"{max(plan / bound - 1, 0.0):.1%}"


_RATIOS: tuple[Callable[[PlanResult], float], ...] = (
    lambda result: result.baseline / result.placed,
    lambda result: result.baseline / result.plan,
    lambda result: result.found.get("fastest device", math.inf) / result.plan,
    lambda result: result.baseline / result.bound,
)


def _means(results: Sequence[PlanResult]) -> markdown.Row:
    means = [_geometric_mean(list(map(ratio, results))) for ratio in _RATIOS]
    before = _HEADER.index("x baseline, placed") - 1
    after = len(_HEADER) - 1 - before - len(means)
    return ("geometric mean", *[""] * before, *(f"{mean:.2f}" for mean in means), *[""] * after)


def _by_batch(results: Sequence[PlanResult]) -> tuple[str, ...]:
    return ("method", *(f"requests of {batch}" for batch in _batches(results)), "all")


def _batches(results: Sequence[PlanResult]) -> list[int]:
    return list(dict.fromkeys(result.batch for result in results))


def _attempts(results: Sequence[PlanResult]) -> Iterator[markdown.Row]:
    """Yield what each method reached, then plans that may divide requests, and what the bounds allow."""
    names = dict.fromkeys(name for result in results for name in result.found)
    rows: dict[str, Callable[[PlanResult], float]] = {
        name: partial(lambda result, name: result.found.get(name, result.placed), name=name) for name in names
    }
    rows["with divided images or mixed placements"] = lambda result: result.plan
    rows["the bound"] = lambda result: result.bound
    for name, seconds in rows.items():
        gain = partial(lambda each, seconds: each.baseline / seconds(each), seconds=seconds)
        yield (name, *_means_by_batch(results, gain))


def _over_each(results: Sequence[PlanResult]) -> Iterator[markdown.Row]:
    for method in BASELINES:
        gain = partial(lambda each, name: each.found.get(name, each.placed) / each.plan, name=method.name)
        yield (method.name, *_means_by_batch(results, gain))


def _means_by_batch(results: Sequence[PlanResult], ratio: Callable[[PlanResult], float]) -> Iterator[str]:
    """Yield the geometric mean of a ratio for each batch, then that of all."""
    for batches in (*([batch] for batch in _batches(results)), _batches(results)):
        yield f"{_geometric_mean([ratio(each) for each in results if each.batch in batches]):.3f}"


def _geometric_mean(ratios: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


_GRAIN = (
    "network", "batch", "fastest device us", "longest path us", "all work us", "a kernel us", "a copy us", "dear",
)  # fmt: skip


def _one_each(results: Sequence[PlanResult]) -> Iterable[PlanResult]:
    return {(result.network, result.batch): result for result in results}.values()


def _grain_row(result: PlanResult) -> markdown.Row:
    grain = result.grain
    alone = result.found.get("fastest device")
    times = (f"{seconds * 1e6:.1f}" for seconds in (grain.path, grain.area, grain.kernel, grain.copy))
    return (result.network, str(result.batch), _us(alone), *times, f"{grain.dear:.0%}")


def as_json(results: Sequence[PlanResult]) -> str:
    """Return the results as JSON."""
    return json.dumps([asdict(result) for result in results], indent=1)
