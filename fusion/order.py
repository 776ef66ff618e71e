"""Which parts of a run wait for which: those that touch the same memory, where one of them writes it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Touched:
    """The memory that a launch touches, by whatever names a part of it that overlaps no other part.

    Attributes:
        reads, writes: What is in both is written.
    """

    reads: frozenset[Hashable]
    writes: frozenset[Hashable]


@dataclass(frozen=True)
class Order:
    """What has to be done before what, of launches that are given one after another.

    Attributes:
        waits: Of each, the earlier ones that it waits for itself; what these wait for is left out.
        before: Of each, all that is done before it begins, as the bits of a number.
    """

    waits: tuple[tuple[int, ...], ...]
    before: tuple[int, ...]

    def is_before(self, one: int, other: int) -> bool:
        """Return whether a launch is done before another begins."""
        return bool(self.before[other] >> one & 1)


def order_of(launches: Sequence[Touched]) -> Order:
    """Return which launches wait for which, so that each meets the memory as if all ran one after another."""
    writer: dict[Hashable, int] = {}
    readers: dict[Hashable, list[int]] = {}
    waits, before = list[tuple[int, ...]](), list[int]()
    for number, touched in enumerate(launches):
        asked = {writer[place] for place in touched.reads | touched.writes if place in writer}
        for place in touched.writes:
            asked.update(readers.pop(place, ()))
            writer[place] = number
        for place in touched.reads - touched.writes:
            readers.setdefault(place, []).append(number)
        indirect = 0
        for each in asked:
            indirect |= before[each]
        direct = tuple(sorted(each for each in asked if not indirect >> each & 1))
        waits.append(direct)
        before.append(indirect | sum(1 << each for each in direct))
    return Order(tuple(waits), tuple(before))


def place_apart(users: Sequence[tuple[Sequence[int], int]], order: Order) -> list[range]:
    """Return which bytes launches work in: none that another may use meanwhile.

    Args:
        users: Of each part the launches that use it, one after another, and its bytes.
    """
    placed = list[range]()
    for launches, size in users:
        taken = [
            held
            for held, (others, _) in zip(placed, users, strict=False)
            if not all(order.is_before(one, other) for one in others for other in launches)
        ]
        at = 0
        for held in sorted(taken, key=lambda each: each.start):
            if at + size <= held.start:
                break
            at = max(at, held.stop)
        placed.append(range(at, at + size))
    return placed
