"""Which activations of a device's run share memory: those of calls that are in order anyway, so that branches of a
model can be computed at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fusion.module.plan import RunPlan
from fusion.order import Order, Touched, order_of

MOST_GROWTH = 2
"""How many times as much memory branches may take as calls one after another: a device with many branches would keep
the activations of all."""


def share_by_order(apart: RunPlan, in_turn: RunPlan) -> RunPlan:
    """Return the plan of a run that may compute branches at the same time; `in_turn` where that takes too much memory.

    A storage is given to a tensor if the call that makes it is behind all that used the storage before, whatever the
    order of other calls; of several the one of the closest size.

    Args:
        apart: The plan with a storage for each tensor, which the first call that has it makes.
        in_turn: The plan of the same calls one after another.
    """
    used = _users(apart)
    order, kept = _order_by_data(apart, used), _kept(apart)
    chosen, sizes, users = dict[int, int](), list[int](), list[int]()
    for storage in sorted(used, key=lambda each: used[each][0]):
        size, before = apart.storages[storage], order.before[used[storage][0]]
        free = [number for number, mask in enumerate(users) if not mask & ~before]
        if free:
            number = min(free, key=lambda each: abs(sizes[each] - size))
            sizes[number] = max(sizes[number], size)
        else:
            number = len(sizes)
            sizes.append(size)
            users.append(0)
        chosen[storage] = number
        users[number] |= sum(1 << call for call in used[storage]) | (kept[storage] << len(apart.calls))
    if sum(sizes) > MOST_GROWTH * sum(in_turn.storages) or any(each.storage not in chosen for each in apart.buffers):
        return in_turn
    buffers = tuple(replace(each, storage=chosen[each.storage]) for each in apart.buffers)
    return replace(apart, storages=tuple(sizes), buffers=buffers)


def _users(plan: RunPlan) -> dict[int, list[int]]:
    """Return the calls that have each storage, in order."""
    found = dict[int, list[int]]()
    for number, call in enumerate(plan.calls):
        for argument in call.arguments:
            if argument.kind == "buffer":
                found.setdefault(plan.buffers[argument.index].storage, []).append(number)
    return found


def _order_by_data(plan: RunPlan, used: dict[int, list[int]]) -> Order:
    """Return which calls are behind which because they read what these make."""
    reads, writes = ([set[int]() for _ in plan.calls] for _ in range(2))
    for storage, (first, *later) in used.items():
        writes[first].add(storage)
        for call in later:
            reads[call].add(storage)
    return order_of([Touched(frozenset(one), frozenset(other)) for one, other in zip(reads, writes, strict=True)])


def _kept(plan: RunPlan) -> Sequence[bool]:
    """Return of each storage whether an output is there after the run."""
    places = [output.place for output in plan.outputs if output.place is not None]
    there = {plan.buffers[place.index].storage for place in places if place.kind == "buffer"}
    return [storage in there for storage in range(len(plan.storages))]
