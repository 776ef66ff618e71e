"""Attention in one kernel, against float64 NumPy over random geometry, masks, epilogues, vector widths and threads."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax

from backends.cpu.kernels.attention.plan import AttentionDemand, plan_attention, why_not_fused
from backends.cpu.kernels.attention.read import Chain
from backends.tensorir.kernel_info import kernel_info
from tests.backends.cpu.kernels.anchored import TARGETS, Epilogue, Ran, always, check, kernels_of, normal, run
from tests.backends.cpu.kernels.drawn import EXAMPLES, MACHINE, epilogues, extents, seeds, targets, threads

op = relax.op


@dataclass(frozen=True)
class Attention:
    """Sizes of one attention, and what happens to its scores: each step in Relax and in NumPy.

    Attributes:
        batch: Leading axes.
        rows, depth, keys, channels: Of [rows, depth] x [depth, keys], whose rows go on to [keys, channels].
        steps: "mul" and "div" scale, "mask" adds, "hide" adds -inf at some keys of each row, "tanh" caps.
        mask: Shape of the mask; it broadcasts.
        behind: As `Epilogue.steps`.
        orders: In which order the axes of queries, keys and values lie; () where they are row-major.
        softmax: Whether one stands between the products.
    """

    batch: tuple[int, ...]
    rows: int
    depth: int
    keys: int
    channels: int
    steps: tuple[str, ...] = ()
    mask: tuple[int, ...] = ()
    behind: tuple[str, ...] = ()
    seed: int = 0
    orders: tuple[tuple[int, ...], ...] = ()
    softmax: bool = True

    @property
    def epilogue(self) -> Epilogue:
        return Epilogue(self.behind, (*self.batch, self.rows, self.channels), self.seed)

    def arrays(self) -> list[np.ndarray]:
        """Return queries, transposed keys, values, the mask where there is one, and what the epilogue reads."""
        operands, extra = self._logical()[:3], self._logical()[3:]
        lying = (np.ascontiguousarray(x.transpose(axes)) for x, axes in zip(operands, self.orders, strict=False))
        return [*(lying if self.orders else operands), *extra]

    def _logical(self) -> list[np.ndarray]:
        shapes = ((self.rows, self.depth), (self.depth, self.keys), (self.keys, self.channels))
        operands = [normal((*self.batch, *shape), self.seed + i) for i, shape in enumerate(shapes)]
        return [*operands, *([self._mask()] if self._masked else []), *self.epilogue.arrays()]

    @property
    def _masked(self) -> bool:
        return bool({"mask", "hide"} & set(self.steps))

    def _mask(self) -> np.ndarray:
        mask = normal(self.mask, self.seed + 9)
        if "hide" in self.steps and self.mask[-1] > 1:
            mask[..., 1:][mask[..., 1:] > 0.5] = -np.inf
        return mask

    def relax(self, b: relax.BlockBuilder, q: relax.Var, k: relax.Var, v: relax.Var, *extra: relax.Var) -> relax.Expr:
        if self.orders:
            operands = zip((q, k, v), self.orders, strict=True)
            q, k, v = (b.emit(op.permute_dims(x, [*map(int, np.argsort(axes))])) for x, axes in operands)
        scores, rest = b.emit(op.matmul(q, k)), list(extra)
        mask = rest.pop(0) if self._masked else None
        for step in self.steps:
            match step:
                case "mul":
                    scores = op.multiply(scores, relax.const(np.float32(0.25)))
                case "div":
                    scores = op.divide(scores, relax.const(np.float32(3.0)))
                case "tanh":
                    scores = op.tanh(scores)
                case _:
                    scores = op.add(scores, mask)
            scores = b.emit(scores)
        weights = b.emit(op.nn.softmax(scores, -1)) if self.softmax else scores
        return self.epilogue.relax(b, op.matmul(weights, v), rest)

    def numpy(self) -> list[np.ndarray]:
        q, k, v, *extra = (array.astype("float64") for array in self._logical())
        scores = q @ k
        for step in self.steps:
            match step:
                case "mul":
                    scores = scores * 0.25
                case "div":
                    scores = scores / 3
                case "tanh":
                    scores = np.tanh(scores)
                case _:
                    scores = scores + extra[0]
        if self.softmax:
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            scores = weights / weights.sum(-1, keepdims=True)
        return self.epilogue.numpy(scores @ v)

    def run(self, target: str = "llvm", many: int = 2) -> Ran:
        return run(self.relax, self.arrays(), target, many, judge=always)


@st.composite
def attentions(draw: st.DrawFn, always_softmax: bool = False) -> Attention:
    batch = tuple(draw(st.lists(st.integers(1, 3), max_size=2)))
    rows, depth, keys, channels = (draw(extents) for _ in range(4))
    softmax = always_softmax or draw(st.booleans())
    steps = draw(st.lists(st.sampled_from(["mul", "div", "tanh"]), max_size=2))
    if draw(st.booleans()):
        steps.insert(draw(st.integers(0, len(steps))), draw(st.sampled_from(["mask", "hide"] if softmax else ["mask"])))
    full = (*batch, rows, keys)
    mask = tuple(n if draw(st.booleans()) else 1 for n in full[:-1])
    behind, seed = draw(epilogues()), draw(seeds)
    return Attention(
        batch, rows, depth, keys, channels, tuple(steps), (*mask, keys), behind, seed, softmax=softmax
    )  # fmt: skip


@EXAMPLES
@given(attentions(), targets, threads)
def test_attention(attention: Attention, target: str, many: int) -> None:
    ran = attention.run(target, many)
    check(ran, attention.numpy())
    assert ran.templates() == ["attention"]


@EXAMPLES
@given(attentions(), st.randoms(use_true_random=False), targets, threads)
def test_operands_are_read_as_they_lie(attention: Attention, random, target: str, many: int) -> None:
    """The rows of the left operand are contiguous; keys and values have their axes in any order."""
    *lead, last = range(len(attention.batch) + 2)
    left, *rights = (random.sample(axes, len(axes)) for axes in (lead, [*lead, last], [*lead, last]))
    turned = replace(attention, orders=((*left, last), *map(tuple, rights)))
    check(turned.run(target, many), turned.numpy())


@pytest.mark.parametrize("keys", [15, 16, 33, 64])
@pytest.mark.parametrize("depth", [13, 16, 40])
def test_transposed_keys_are_turned_inside_the_kernel(keys: int, depth: int) -> None:
    """Heads that a reshape cut from rows: queries, keys and values lie as [batch, place, head, channel]."""
    heads = ((0, 2, 1, 3), (0, 3, 1, 2), (0, 2, 1, 3))
    attention = Attention((2, 3), 20, depth, keys, 24, ("mul",), orders=heads)
    ran = attention.run()
    check(ran, attention.numpy())
    assert set(ran.templates()) == {"attention"}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("rows", "keys"), [(1, 33), (3, 48), (1, 7)])
def test_few_rows_with_keys_that_lie_row_by_row_are_dot_products(rows: int, keys: int, target: str) -> None:
    """A step of a decoder: nothing is turned for it."""
    by_row = ((0, 1, 2, 3), (0, 1, 3, 2), (0, 1, 2, 3))
    attention = Attention((2, 3), rows, 32, keys, 24, ("mul", "hide"), (2, 1, 1, keys), ("add",), orders=by_row)
    ran = attention.run(target)
    check(ran, attention.numpy())
    ((name, kernel),) = ran.kernels.items()
    assert "dot products" in kernel_info(name, kernel).tile


SHAPES = {
    "fewer rows than a register tile": Attention((2, 3), 2, 8, 20, 8),
    "one row": Attention((1, 4), 1, 16, 33, 16),
    "one key": Attention((2,), 5, 8, 1, 8),
    "no batch": Attention((), 40, 16, 40, 15),
    "a mask per key": Attention((2, 2), 19, 16, 37, 16, ("div", "hide"), (2, 1, 1, 37)),
    "a mask per row": Attention((2, 2), 19, 16, 37, 16, ("mul", "hide"), (2, 1, 19, 37)),
    "values wider than the keys": Attention((2,), 21, 8, 9, 40),
    "the last block overlaps": Attention((3,), 197, 4, 24, 5),
    "many vectors": Attention((1,), 30, 36, 260, 36, ("div",)),
    "products alone": Attention((2, 3), 33, 20, 40, 24, softmax=False),
    "products with an activation between": Attention((), 50, 16, 70, 15, ("mask", "tanh"), (50, 70), softmax=False),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name: str) -> None:
    ran = SHAPES[name].run()
    check(ran, SHAPES[name].numpy())
    assert ran.templates() == ["attention"]


@pytest.mark.parametrize("target", TARGETS)
def test_a_narrow_last_panel_of_keys(target: str) -> None:
    """A test for the last panel outside of the loop over panels made TVM write that loop twice, with one variable."""
    attention = Attention((), 5, 65, 13, 1)
    check(attention.run(target, 3), attention.numpy())


def test_operands_shared_by_batches() -> None:
    q, k, v = normal((2, 3, 9, 8), 0), normal((3, 8, 20), 1), normal((1, 1, 20, 7), 2)

    def build(b: relax.BlockBuilder, *x: relax.Var) -> relax.Expr:
        return op.matmul(b.emit(op.nn.softmax(b.emit(op.matmul(x[0], x[1])), -1)), x[2])

    scores = q.astype("float64") @ k
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    ran = run(build, [q, k, v], "llvm", 2, judge=always)
    check(ran, [weights / weights.sum(-1, keepdims=True) @ v])
    assert ran.templates() == ["attention"]


def test_softmax_in_parts() -> None:
    """Some exporters write a softmax as maximum, difference, exponential, sum and quotient."""
    arrays = [normal(shape, seed) for seed, shape in enumerate([(2, 19, 8), (2, 8, 37), (2, 37, 16)])]

    def build(b: relax.BlockBuilder, q: relax.Var, k: relax.Var, v: relax.Var) -> relax.Expr:
        scores = b.emit(op.matmul(q, k))
        grown = b.emit(op.exp(op.subtract(scores, b.emit(op.max(scores, -1, keepdims=True)))))
        return op.matmul(b.emit(op.divide(grown, b.emit(op.sum(grown, -1, keepdims=True)))), v)

    q, k, v = (array.astype("float64") for array in arrays)
    weights = np.exp(q @ k - (q @ k).max(-1, keepdims=True))
    ran = run(build, arrays, "llvm", 2, judge=always)
    check(ran, [weights / weights.sum(-1, keepdims=True) @ v])
    assert ran.templates() == ["attention"]


def test_rows_of_tiny_totals_are_divided_where_they_are_no_softmax() -> None:
    """The reciprocal of a total below 2^-128 is infinite; all numbers here are exact."""
    numbers = np.random.default_rng(0)
    q = np.full((4, 4), 2.0**-70, "float32")
    k = (numbers.integers(1, 5, (4, 8)) * 2.0**-70).astype("float32")
    v = normal((8, 8), 0)

    def build(b: relax.BlockBuilder, *x: relax.Var) -> relax.Expr:
        scores = b.emit(op.matmul(x[0], x[1]))
        above = b.emit(op.subtract(scores, b.emit(op.min(scores, -1, keepdims=True))))
        return op.matmul(b.emit(op.divide(above, b.emit(op.sum(above, -1, keepdims=True)))), x[2])

    scores = q.astype("float64") @ k
    above = scores - scores.min(-1, keepdims=True)
    ran = run(build, [q, k, v], "llvm", 1, judge=always)
    check(ran, [above / above.sum(-1, keepdims=True) @ v])
    assert ran.templates() == ["attention"]


def test_a_row_without_a_key_is_nan_alone() -> None:
    attention = Attention((2,), 5, 8, 20, 8, ("mask",), (2, 5, 20))
    arrays = attention.arrays()
    arrays[3][0, 2] = -np.inf
    made = run(attention.relax, arrays, "llvm", 2, judge=always).outputs[0]
    assert np.isnan(made[0, 2]).all()
    assert np.isnan(made).sum() == 8


def test_both_products_are_counted() -> None:
    attention = Attention((2, 3), 32, 16, 48, 24, ("mul",))
    ((name, kernel),) = kernels_of(attention.relax, attention.arrays(), "llvm", 2, judge=always).items()
    info = kernel_info(name, kernel)
    products = 2 * 6 * 32 * 48 * (16 + 24)
    assert products < info.flops < 1.25 * products
    assert info.template == "attention"
    assert info.tile.endswith("rows/1")


@pytest.mark.parametrize(
    ("keys", "reason"), [(128, ""), (1024, ""), (200_000, "rows of 200000 scores do not fit the cache"), (0, "empty")]
)
def test_the_judge_says_why_a_chain_stays_in_parts(keys: int, reason: str) -> None:
    answer = why_not_fused(AttentionDemand(Chain(2, 64, 64, keys, 64), unread="unread"), MACHINE, 2)
    assert reason in answer
    assert bool(reason) == bool(answer)


def test_keys_that_each_task_would_turn_again_are_transposed_before() -> None:
    assert not why_not_fused(AttentionDemand(Chain(12, 128, 64, 128, 64), turned=128 * 64), MACHINE, 2)
    reason = why_not_fused(AttentionDemand(Chain(1, 512, 64, 8192, 64), turned=8192 * 64), MACHINE, 64)
    assert "transposed by a kernel of their own" in reason


def test_scores_of_a_block_stay_in_half_of_l2() -> None:
    for keys in (16, 197, 1024, 4096):
        for buffers, unread in itertools.product((2, 3), ("", "no softmax")):
            plan = plan_attention(AttentionDemand(Chain(2, 512, 64, keys, 64), buffers, unread=unread), MACHINE, 2)
            assert plan is not None
            assert (buffers if plan.keys == keys else 2) * 4 * plan.rows * plan.keys <= MACHINE.l2_bytes // 2


def test_tasks_for_all_threads_where_batches_are_too_few() -> None:
    plan = plan_attention(AttentionDemand(Chain(1, 512, 64, 512, 64)), MACHINE, 4)
    assert plan is not None
    assert plan.chunks >= 4


@pytest.mark.parametrize(("keys", "between", "copied"), [(512, True, True), (512, False, True), (208, True, False)])
def test_keys_whose_rows_share_the_sets_of_l1_are_copied(keys: int, between: bool, copied: bool) -> None:
    """Chimera's G12 on two vCPUs of Skylake-X, us in place and copied: 959 and 843, without a softmax 744 and 643."""
    demand = AttentionDemand(Chain(1, 1024, 64, keys, 64), buffers=1 + between, between=between, key_pitch=4 * keys)
    plan = plan_attention(demand, MACHINE, 2)
    assert plan is not None
    assert plan.packed == copied
