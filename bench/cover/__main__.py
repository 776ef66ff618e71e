"""`python -m bench.cover`: random problems of covering a graph, small ones against trying all, large ones for time."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from itertools import product

from bench import command
from bench.cover.draw import draw_cover_problem
from bench.cover.exhaustive import has_cycle, least_seconds
from bench.cover.networks import network_problem
from placement.cover.check import cover_seconds, why_not_cover
from placement.cover.problem import Cover, CoverProblem, subgraphs_of
from placement.cover.search import find_cover


def main() -> int:
    """Return 1 where a cover is wrong, or of a small graph not the best of all."""
    options = _parser().parse_args()
    for seed in range(options.instances):
        difference = difference_of(seed)
        if difference:
            print(f"instance {seed}: {difference}")
            return 1
    print(f"{options.instances} instances: every cover is acyclic, has every operator once, and is the best there is")
    for size in options.sizes:
        _time(f"random, {size} operators", [draw_cover_problem(seed, size) for seed in range(options.graphs)])
    for name in options.networks:
        for backends, price in product((2, 4), (0.1, 1.0)):
            problem = network_problem(name, backends, price)
            title = f"{name}, {len(problem.graph.reads)} operators, {backends} backends, moves of {price}"
            _time(title, [problem])
    return 0


def difference_of(seed: int) -> str:
    """Return what is wrong with the cover of the small random problem `seed`; "" for nothing."""
    problem = draw_cover_problem(seed)
    cover = find_cover(problem)
    least = least_seconds(problem)
    if abs(cover.seconds - least) > 1e-9 * least:
        return f"{cover.seconds} seconds in place of {least}"
    return "it is not said to be exact" if not cover.is_exact else why_wrong(problem, cover)


def why_wrong(problem: CoverProblem, cover: Cover) -> str:
    """Return why `cover` is none, or takes what it does not say; "" where nothing is wrong."""
    subgraphs = subgraphs_of(problem, cover)
    operators = [each.operators for each in subgraphs]
    if has_cycle(problem.graph, operators):
        return "subgraphs wait for each other"
    if abs(cover_seconds(problem, subgraphs) - cover.seconds) > 1e-9 * cover.seconds:
        return f"it says {cover.seconds} seconds and takes {cover_seconds(problem, subgraphs)}"
    if cover.bound > cover.seconds * (1 + 1e-9):
        return "its bound is above it"
    return why_not_cover(problem.graph, operators)


def _time(title: str, problems: Sequence[CoverProblem]) -> None:
    exact, slowest, gap = 0, 0.0, 0.0
    for problem in problems:
        start = time.process_time()
        cover = find_cover(problem)
        slowest = max(slowest, time.process_time() - start)
        exact += cover.is_exact
        gap = max(gap, cover.seconds / cover.bound - 1)
    others = f", others at most {gap:.0%} above the bound" if exact < len(problems) else ""
    print(f"{title}: {exact} of {len(problems)} exact{others}; {slowest:.1f} s", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.cover", description=__doc__)
    parser.add_argument("--instances", type=int, default=10_000, metavar="N", help="of up to 12 operators")
    parser.add_argument("--sizes", type=int, nargs="*", default=[100, 300], metavar="N", help="operators of large ones")
    parser.add_argument("--networks", nargs="*", default=[], metavar="NAME", help="models of the zoo, costs drawn")
    parser.add_argument("--graphs", type=int, default=20, metavar="N", help="large graphs of each size")
    return parser


if __name__ == "__main__":
    command.run(main)
