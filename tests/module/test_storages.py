"""Which activations share memory where branches may be computed at the same time."""

from __future__ import annotations

from fusion.module.plan import Argument, KernelCall, OutputPlan, RunPlan, TensorPlan
from fusion.module.storages import share_by_order

_DTYPE = "uint8"


def plan(sizes: list[int], calls: list[list[int]], outputs: tuple[int, ...] = ()) -> RunPlan:
    """Return a plan of tensors of so many bytes, each apart, and of calls that have these and make the last."""
    return RunPlan(
        tuple(sizes),
        tuple(TensorPlan(number, (size,), _DTYPE) for number, size in enumerate(sizes)),
        (),
        tuple(KernelCall("kernel", tuple(buffer(each, sizes) for each in tensors), ()) for tensors in calls),
        tuple(OutputPlan(_DTYPE, False, buffer(each, sizes)) for each in outputs),
    )


def buffer(index: int, sizes: list[int]) -> Argument:
    return Argument("buffer", index, (sizes[index],), _DTYPE)


def places(found: RunPlan) -> list[int]:
    return [each.storage for each in found.buffers]


def shared(apart: RunPlan, most: int = 1 << 20) -> RunPlan:
    return share_by_order(apart, RunPlan((most,), (), (), (), ()))


def test_a_chain_has_two_storages() -> None:
    found = shared(plan([8, 4, 16, 2], [[0], [0, 1], [1, 2], [2, 3]]))
    assert places(found) == [0, 1, 0, 1]
    assert found.storages == (16, 4)


def test_a_branch_has_the_memory_of_no_other() -> None:
    """0 -> 1 and 2 -> 3 from inputs, 4 of both; the last call is behind all, so that 5 may lie where 0 did."""
    found = shared(plan([4, 4, 4, 4, 4, 4], [[0], [0, 1], [2], [2, 3], [1, 3, 4], [4, 5]]))
    assert len({*places(found)[:4]}) == 4
    assert places(found)[4] in (places(found)[0], places(found)[2])


def test_what_is_read_after_the_run_is_nobody_elses() -> None:
    found = shared(plan([4, 4, 4, 4], [[0], [0, 1], [1, 2], [2, 3]], outputs=(0,)))
    assert places(found).count(places(found)[0]) == 1


def test_too_much_memory_is_that_of_calls_in_turn() -> None:
    apart = plan([100] * 6, [[0], [1], [2], [3], [4], [0, 1, 2, 3, 4, 5]])
    in_turn = RunPlan((299,), (), (), (), ())
    assert share_by_order(apart, in_turn) is in_turn
    assert sum(share_by_order(apart, RunPlan((300,), (), (), (), ())).storages) == 600
