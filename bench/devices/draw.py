"""Random problems, small enough to try everything."""

from __future__ import annotations

import random

from placement.devices import OTHER, Device, Link, Topology
from placement.problem import PlacementProblem
from placement.tasks import TaskEdge, TaskGraph, TaskNode


def draw_problem(seed: int, largest: int = 10, devices: int | None = None) -> PlacementProblem:
    """Return a problem of up to `largest` tasks on two or three unlike devices, some with little memory, copies from
    cheap to dearer than tasks, and now and then a task that a device cannot run."""
    draw = random.Random(seed)
    size, count = draw.randint(1, largest), devices or draw.choice((2, 2, 3))
    speeds = [draw.uniform(0.5, 2.0) for _ in range(count)]
    tasks = tuple(TaskNode(f"task {index}", _seconds(draw, speeds), draw.uniform(0.0, 2.0)) for index in range(size))
    price, density = draw.choice((0.05, 0.3, 2.0)), draw.choice((0.15, 0.4))
    results = [draw.uniform(0.0, 1.0) for _ in range(size)]
    edges = tuple(
        TaskEdge(source, target, results[source])
        for target in range(size)
        for source in range(target)
        if draw.random() < density or (source == target - 1 and draw.random() < 0.5)
    )
    memory = sum(task.memory for task in tasks)
    machines = tuple(
        Device(f"device {k}", {OTHER: 1.0}, 1.0, memory * draw.choice((0.4, 0.7, 1.0, 1.0, 1.0))) for k in range(count)
    )
    # A byte takes as many seconds as `price` says, so that sizes and times are of one magnitude.
    links = tuple(
        tuple(Link(draw.uniform(0.0, 0.2) * price * 1e6, 1e-9 / (price * draw.uniform(0.5, 1.5))) for _ in machines)
        for _ in machines
    )
    return PlacementProblem(TaskGraph(tasks, edges), Topology(machines, links))


def _seconds(draw: random.Random, speeds: list[float]) -> tuple[float, ...]:
    seconds = [speed * draw.uniform(0.5, 1.5) * draw.choice((1.0, 1.0, 3.0)) for speed in speeds]
    if draw.random() < 0.05:
        seconds[draw.randrange(len(seconds))] = float("inf")
    return tuple(seconds)
