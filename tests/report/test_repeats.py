"""Repeated blocks are found, whole, and only where the copies do the same with the same."""

from __future__ import annotations

import random

from fusion.report.repeats import Stack, find_repeats


def chain(labels: str) -> list[list[int]]:
    return [[node - 1] if node else [] for node in range(len(labels))]


def test_copies_in_a_row_are_one_stack() -> None:
    labels = "x" + "abc" * 4 + "z"
    assert find_repeats(labels, chain(labels)) == [Stack(1, 3, 4)]


def test_what_comes_once_is_no_stack() -> None:
    assert find_repeats("abcdefg", chain("abcdefg")) == []
    assert find_repeats("", []) == []


def test_two_repetitions_do_not_overlap() -> None:
    labels = "x" + "ab" * 4 + "-" + "cde" * 3
    assert find_repeats(labels, chain(labels)) == [Stack(1, 2, 4), Stack(10, 3, 3)]


def test_the_same_outer_value_may_be_read_by_all_copies() -> None:
    labels = "m" + "abc" * 4
    sources = [[], *([node - 1] for node in range(1, 13))]
    for copy in range(4):
        sources[2 + 3 * copy] = [1 + 3 * copy, 0]
    assert find_repeats(labels, sources) == [Stack(1, 3, 4)]


def test_a_copy_that_reads_something_else_ends_the_stack() -> None:
    labels = "x" + "abc" * 6
    sources = chain(labels)
    sources[3 * 4 + 2] = [2]  # "b" of the fifth copy reads "b" of the first
    assert find_repeats(labels, sources) == [Stack(1, 3, 4)]


def test_the_frame_goes_where_least_crosses_it() -> None:
    # Every "a" forks into b and c, which meet in the next "a": two edges cross every other place.
    labels, sources = "x", [[]]
    for _ in range(5):
        a = len(sources)
        labels += "abc"
        sources += [[a - 1, a - 2] if a > 2 else [0, 0], [a], [a]]
    labels, sources = labels + "a", [*sources, [len(sources) - 1, len(sources) - 2]]
    (stack,) = find_repeats(labels, sources)
    assert labels[stack.start : stack.start + 3] == "bca"
    inside = range(stack.start + stack.period, stack.start + 2 * stack.period)
    assert len({s for node in inside for s in sources[node] if s < inside.start}) == 1


def test_stacks_of_random_graphs_are_true() -> None:
    rng = random.Random(7)
    for _ in range(200):
        size = rng.randrange(1, 60)
        labels = [rng.choice("ab") for _ in range(size)]
        sources = [sorted({rng.randrange(max(0, node - 4), node) for _ in range(rng.randrange(3))} if node else set())
                   for node in range(size)]  # fmt: skip
        for stack in find_repeats(labels, sources):
            check_stack(stack, labels, sources)


def check_stack(stack: Stack, labels: list[str], sources: list[list[int]]) -> None:
    second = stack.start + stack.period
    assert stack.count > 1
    assert stack.end <= len(labels)
    for node in range(second, second + stack.period):
        for copy in range(2, stack.count):
            other = node + (copy - 1) * stack.period
            assert labels[other] == labels[node]
            for mine, theirs in zip(sources[node], sources[other], strict=True):
                assert theirs - mine in ((other - node,) if mine >= stack.start else (0,))
