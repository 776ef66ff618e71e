"""`python -m bench.devices.large`: plans for 10,000 operators on 16 devices, with the time and memory they take."""

from __future__ import annotations

import argparse
import random
import resource
import time

from bench import command
from placement.choose import choose_plan
from placement.devices import OTHER, Device, Link, Topology
from placement.problem import OBJECTIVES, PlacementProblem
from placement.tasks import TaskEdge, TaskGraph, TaskNode

_REACH = 50
"""How far before an operator those are that it reads."""


def draw_large(operators: int, devices: int, seed: int = 0) -> PlacementProblem:
    """Return a graph in which each operator reads one to three of those before it, on devices of unlike speeds."""
    draw = random.Random(seed)
    speeds = [draw.uniform(0.5, 2.0) for _ in range(devices)]
    work = [draw.uniform(10e-6, 500e-6) for _ in range(operators)]
    tasks = tuple(
        TaskNode(f"task {at}", tuple(each * speed * draw.uniform(0.8, 1.25) for speed in speeds), draw.uniform(0, 4e6))
        for at, each in enumerate(work)
    )
    results = [draw.uniform(1e4, 1e6) for _ in range(operators)]
    edges = tuple(
        TaskEdge(source, target, results[source])
        for target in range(1, operators)
        for source in sorted({draw.randrange(max(0, target - _REACH), target) for _ in range(draw.randint(1, 3))})
    )
    machines = tuple(Device(f"device {k}", {OTHER: 1.0}, 1.0, 4e9) for k in range(devices))
    return PlacementProblem(TaskGraph(tasks, edges), Topology.uniform(machines, Link(10.0, 12.0)))


def main() -> int:
    """Print a line for each objective; return 1 if one took more than a minute of CPU time or all 4 GiB."""
    parser = argparse.ArgumentParser(prog="python -m bench.devices.large", description=__doc__)
    parser.add_argument("--operators", type=int, default=10_000)
    parser.add_argument("--devices", type=int, default=16)
    options = parser.parse_args()
    problem, is_good = draw_large(options.operators, options.devices), True
    for objective in OBJECTIVES:
        started = time.process_time()
        choice = choose_plan(problem, objective)
        seconds = time.process_time() - started
        gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
        print(
            f"{objective}: {choice.plan.seconds * 1e3:.2f} ms by {choice.method}, {choice.gap:.1%} above the bound, in"
            f" {seconds:.1f} s of CPU time and {gib:.2f} GiB",
            flush=True,
        )
        is_good = is_good and seconds < 60 and gib < 4
    return int(not is_good)


if __name__ == "__main__":
    command.run(main)
