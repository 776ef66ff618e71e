"""Attention by blocks of keys, against float64 NumPy and against the same attention in three kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax, tirx

from backends.cpu.kernels.attention.plan import AttentionDemand, AttentionPlan, plan_attention, why_not_fused
from backends.cpu.kernels.attention.read import AttentionStages, Chain, read_attention
from backends.cpu.kernels.shared.register_tile import RegisterTile
from backends.cpu.kernels.shared.split import Split
from backends.cpu.machine import Machine
from backends.tensorir.softmax_rows import LEAST, LEAST_SUM
from backends.tensorir.space import Space
from fusion import context
from partition.access import find_anchors
from partition.profitability import no_template
from tests.backends.cpu.kernels.anchored import TARGETS, Built, Ran, always, built, check, kernels_of, normal, run
from tests.backends.cpu.kernels.attention.test_attention import Attention, attentions
from tests.backends.cpu.kernels.drawn import EXAMPLES, MACHINE, targets, threads
from tests.backends.cpu.kernels.templates import changed
from tests.passes.modules import Build

op = relax.op


@dataclass(frozen=True)
class InBlocks:
    """A space of attention with one point: blocks of `rows` rows by `keys` keys, these `packed` where they may be."""

    rows: int
    keys: int
    packed: bool = False

    def __call__(self, stages: AttentionStages, machine: Machine, many: int) -> Space[AttentionPlan]:
        blocks = Split.of(stages.chain.rows, min(self.rows, stages.chain.rows))
        tile = RegisterTile(min(3, blocks.longest), 1, 2)
        packed = self.packed and AttentionDemand.of(stages).key_pitch > 0
        point = AttentionPlan(blocks.longest, self.keys, tile, tile, min(blocks.count, many), packed, 1.0)
        return Space(point, lambda: iter([point]))


def run_in_blocks(build: Build, arrays: list[np.ndarray], blocks: InBlocks, target: str = "llvm", many: int = 2) -> Ran:
    return built_in_blocks(build, arrays, blocks, target, many)(arrays)


def built_in_blocks(
    build: Build, arrays: list[np.ndarray], blocks: InBlocks, target: str = "llvm", many: int = 2
) -> Built:
    with changed("attention", space=blocks):
        return built(build, arrays, target, many, judge=always)


block_rows, block_keys = st.sampled_from([1, 4, 13, 16, 33]), st.sampled_from([16, 32, 48])
more_keys = st.sampled_from([17, 18, 31, 49, 63, 64, 97, 113, 128, 161])


@EXAMPLES
@given(attentions(always_softmax=True), more_keys, block_rows, block_keys, st.booleans(), targets, threads)
def test_attention_in_blocks(
    attention: Attention, keys: int, rows: int, size: int, packed: bool, target: str, many: int
) -> None:
    attention = replace(attention, keys=keys, mask=(*attention.mask[:-1], keys))
    ran = run_in_blocks(attention.relax, attention.arrays(), InBlocks(rows, size, packed), target, many)
    check(ran, attention.numpy())
    assert ran.templates() == ["attention"]
    assert any("keys" in kernel.made.tile and f"by {size}" in kernel.made.tile for kernel in ran.kernels.values())


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("keys", [33, 64, 100])
def test_transposed_keys_and_values(keys: int, target: str) -> None:
    attention = Attention((2, 2), 21, 24, keys, 40, orders=((0, 2, 1, 3), (0, 3, 1, 2), (3, 0, 1, 2)))
    ran = run_in_blocks(attention.relax, attention.arrays(), InBlocks(14, 32), target)
    check(ran, attention.numpy())
    assert ran.templates() == ["attention"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("rows", [1, 5, 19, 40])
def test_a_last_block_of_one_key(rows: int, target: str) -> None:
    """Its stages are vectorised over the rows: the last vector overlaps the one before, and is computed twice."""
    attention = Attention((2,), rows, 8, 33, 8)
    ran = run_in_blocks(attention.relax, attention.arrays(), InBlocks(40, 32), target)
    check(ran, attention.numpy())


def _causal(rows: int, keys: int) -> np.ndarray:
    return np.where(np.arange(keys) > np.arange(rows)[:, None], -np.inf, 0).astype("float32")


def _hidden(*slices: slice) -> np.ndarray:
    mask = np.zeros((24, 70), "float32")
    for part in slices:
        mask[:, part] = -np.inf
    return mask


def _one(value: float, key: int) -> np.ndarray:
    mask = np.zeros((24, 70), "float32")
    mask[5, key] = value
    return mask


def _row_hidden() -> np.ndarray:
    mask = np.zeros((24, 70), "float32")
    mask[7] = -np.inf
    return mask


MASKS: dict[str, np.ndarray] = {
    "causal": _causal(24, 70),
    "the first block": _hidden(slice(0, 16)),
    "the first two blocks": _hidden(slice(0, 32)),
    "a block in the middle": _hidden(slice(16, 32)),
    "the last block": _hidden(slice(64, 70)),
    "all but the last key": _hidden(slice(0, 69)),
    "all but the first key": _hidden(slice(1, 70)),
    "every key": _hidden(slice(0, 70)),
    "every key of a row": _row_hidden(),
    "large numbers": np.where(np.isinf(_causal(24, 70)), np.float32(-3.4e38), np.float32(0)),
    "scores that grow": np.broadcast_to(np.linspace(-400, 400, 70, dtype="float32"), (24, 70)).copy(),
    "scores that shrink": np.broadcast_to(np.linspace(400, -400, 70, dtype="float32"), (24, 70)).copy(),
    "a NaN in the first block": _one(np.nan, 3),
    "a NaN in the last block": _one(np.nan, 69),
    "an infinity in the first block": _one(np.inf, 3),
    "an infinity in the last block": _one(np.inf, 69),
}


MASKED = Attention((2,), 24, 8, 70, 20, ("mul", "mask"), (1, 24, 70))


@pytest.fixture(scope="module")
def masked() -> tuple[Built, Built]:
    """`MASKED` in three kernels and in one."""
    apart = built(MASKED.relax, MASKED.arrays(), "llvm", 2, judge=no_template)
    return apart, built_in_blocks(MASKED.relax, MASKED.arrays(), InBlocks(13, 16))


@pytest.mark.parametrize("name", MASKS)
def test_masks_come_out_as_in_three_kernels(name: str, masked: tuple[Built, Built]) -> None:
    arrays = [*MASKED.arrays()[:3], MASKS[name][None]]
    ((apart,), (made,)) = (each(arrays).outputs for each in masked)
    np.testing.assert_allclose(made, apart, rtol=0, atol=2e-6 * max(1.0, np.nanmax(np.abs(apart), initial=0)))


def _bounded(b: relax.BlockBuilder, q: relax.Var, k: relax.Var, v: relax.Var, mask: relax.Var) -> relax.Expr:
    """Attention as torch has it, whose rows without keys are zeros."""
    scores = b.emit(op.add(b.emit(op.matmul(q, k)), mask))
    top = b.emit(op.clip(b.emit(op.max(scores, -1, keepdims=True)), LEAST, np.inf))
    grown = b.emit(op.exp(b.emit(op.subtract(scores, top))))
    total = b.emit(op.clip(b.emit(op.sum(grown, -1, keepdims=True)), LEAST_SUM, np.inf))
    return op.matmul(b.emit(op.divide(grown, total)), v)


@cache
def of_a_mask(build: Build, keys: int) -> Built:
    return built_in_blocks(build, [*Attention((2,), 24, 8, 70, 20).arrays(), MASKS["causal"]], InBlocks(13, keys))


@pytest.mark.parametrize("keys", [16, 70])
@pytest.mark.parametrize("name", ["every key of a row", "a NaN in the first block", "an infinity in the last block"])
def test_rows_without_keys_are_zeros_where_the_graph_says_so(name: str, keys: int) -> None:
    arrays = [*Attention((2,), 24, 8, 70, 20).arrays(), MASKS[name]]
    (made,) = of_a_mask(_bounded, keys)(arrays).outputs
    q, k, v, mask = (array.astype("float64") for array in arrays)
    scores = q @ k + mask
    with np.errstate(all="ignore"):
        grown = np.exp(scores - np.maximum(scores.max(-1, keepdims=True), LEAST))
        want = grown / np.maximum(grown.sum(-1, keepdims=True), LEAST_SUM) @ v
    np.testing.assert_allclose(made, want, rtol=2e-5, atol=2e-5)


def guarded(b: relax.BlockBuilder, q: relax.Var, k: relax.Var, v: relax.Var, mask: relax.Var) -> relax.Expr:
    """Attention as torch exports it to ONNX: weights that are NaN are zeros."""
    weights = b.emit(op.nn.softmax(b.emit(op.add(b.emit(op.matmul(q, k)), mask)), -1))
    return op.matmul(b.emit(op.where(b.emit(op.isnan(weights)), relax.const(np.float32(0)), weights)), v)


@pytest.mark.parametrize("keys", [16, 70])
@pytest.mark.parametrize(
    "name", ["causal", "every key of a row", "a NaN in the first block", "an infinity in the last block"]
)
def test_weights_that_are_nan_are_zeros_where_the_graph_says_so(name: str, keys: int) -> None:
    arrays = [*Attention((2,), 24, 8, 70, 20).arrays(), MASKS[name]]
    ran = of_a_mask(guarded, keys)(arrays)
    assert ran.templates() == ["attention"]
    (made,), (want,) = ran.outputs, guarded_exactly(*arrays)
    np.testing.assert_allclose(made, want, rtol=2e-5, atol=2e-5)


def guarded_exactly(*arrays: np.ndarray) -> list[np.ndarray]:
    q, k, v, mask = (array.astype("float64") for array in arrays)
    scores = q @ k + mask
    with np.errstate(all="ignore"):
        grown = np.exp(scores - scores.max(-1, keepdims=True))
        weights = grown / grown.sum(-1, keepdims=True)
    return [np.where(np.isnan(weights), 0, weights) @ v]


@pytest.mark.parametrize("target", TARGETS)
def test_weights_that_are_subnormal_are_zero(target: str) -> None:
    """Each product with one takes an assist of the core's microcode, as masks of -100 make them."""
    attention = Attention((1,), 24, 8, 70, 20, ("mask",), (1, 24, 70))
    distances = np.array([-88, -100, -104], "float32").repeat(8)  # of rows
    mask = np.broadcast_to(distances[:, None], (1, 24, 70)).copy()
    mask[..., 40] = 0
    q, k, v = (np.zeros_like(array) for array in attention.arrays()[:3])
    v[:] = 1e36
    v[:, 40] = 0
    for ran in (
        run(attention.relax, [q, k, v, mask], target, 1, judge=always),
        run_in_blocks(attention.relax, [q, k, v, mask], InBlocks(13, 16), target),
    ):
        assert ran.templates() == ["attention"]
        np.testing.assert_array_equal(ran.outputs[0], 0)


def _unit(b: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    return b.emit(op.nn.softmax(x, -1))


def _in_parts(b: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    grown = b.emit(op.exp(op.subtract(x, b.emit(op.max(x, -1, keepdims=True)))))
    return b.emit(op.divide(grown, b.emit(op.sum(grown, -1, keepdims=True))))


def _without_maximum(b: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    grown = b.emit(op.exp(x))
    return b.emit(op.divide(grown, b.emit(op.sum(grown, -1, keepdims=True))))


def _of_squares(b: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    top = b.emit(op.max(x, -1, keepdims=True))
    grown = b.emit(op.exp(op.negative(op.square(op.subtract(x, top)))))
    return b.emit(op.divide(grown, b.emit(op.sum(grown, -1, keepdims=True))))


def _not_divided(b: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    grown = b.emit(op.exp(op.subtract(x, b.emit(op.max(x, -1, keepdims=True)))))
    return b.emit(op.add(grown, b.emit(op.sum(grown, -1, keepdims=True))))


def _gated(b: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    weights = b.emit(op.nn.softmax(b.emit(op.multiply(x, relax.const(np.float32(0.5)))), -1))
    return b.emit(op.multiply(weights, x))


def _least(b: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    grown = b.emit(op.exp(op.subtract(x, b.emit(op.min(x, -1, keepdims=True)))))
    return b.emit(op.divide(grown, b.emit(op.sum(grown, -1, keepdims=True))))


MIDDLES: dict[str, tuple[Callable[[relax.BlockBuilder, relax.Expr], relax.Expr], str]] = {
    "softmax": (_unit, ""),
    "softmax in parts": (_in_parts, ""),
    "without a maximum": (_without_maximum, "other than a maximum and a sum"),
    "a minimum": (_least, "other than a maximum and a sum"),
    "of squares": (_of_squares, "others than exponentials"),
    "not divided": (_not_divided, "not exponentials divided by their sum"),
    "times the scores": (_gated, "of one kind of scores"),
}


def _attention_with(middle: Callable[[relax.BlockBuilder, relax.Expr], relax.Expr]) -> Build:
    def build(b: relax.BlockBuilder, q: relax.Var, k: relax.Var, v: relax.Var) -> relax.Expr:
        return op.matmul(middle(b, b.emit(op.matmul(q, k))), v)

    return build


@pytest.mark.parametrize("name", MIDDLES)
def test_the_rows_are_read_by_what_they_compute(name: str) -> None:
    middle, reason = MIDDLES[name]
    arrays = [normal(shape, seed) for seed, shape in enumerate([(2, 9, 8), (2, 8, 9), (2, 9, 16)])]
    ran = run(_attention_with(middle), arrays, "llvm", 2, judge=always)
    assert ran.templates() == ["attention"]
    (kernel,) = ran.kernels.values()
    demand = AttentionDemand.of(read_attention(kernel.source))
    assert (reason in demand.unread) if reason else not demand.unread
    assert demand.buffers == (3 if name == "times the scores" else 2)
    (apart,) = run(_attention_with(middle), arrays, "llvm", 2, judge=no_template).outputs
    np.testing.assert_allclose(ran.outputs[0], apart, rtol=1e-5, atol=1e-5)


def test_why_long_rows_of_something_else_stay_in_parts_is_said() -> None:
    reason = why_not_fused(AttentionDemand(Chain(2, 64, 64, 200_000, 64), unread="no softmax"), MACHINE, 2)
    assert reason == "rows of 200000 scores do not fit the cache; no softmax"


@pytest.mark.parametrize("name", MIDDLES)
@pytest.mark.parametrize("sizes", [(4, 33, 8, 40, 8), (2, 5, 2, 40_000, 3), (1, 70, 4, 3_000, 4), (3, 64, 16, 64, 16)])
def test_what_the_judge_takes_its_template_writes(name: str, sizes: tuple[int, ...]) -> None:
    """Two products in a kernel of any other template would be plain loops."""
    batch, rows, depth, keys, channels = sizes
    shapes = [(batch, rows, depth), (batch, depth, keys), (batch, keys, channels)]
    arrays = [normal(shape, seed) for seed, shape in enumerate(shapes)]
    compiler, reasons = context.resolve("llvm", threads=2).compiler, list[str]()

    def judge(kernel: tirx.PrimFunc) -> str:
        reasons.append(compiler.why_not_fused(kernel))
        return reasons[-1]

    kernels = kernels_of(_attention_with(MIDDLES[name][0]), arrays, "llvm", 2, judge=judge)
    joined = [kernel for kernel in kernels.values() if len(find_anchors(kernel.source)) == 2]
    assert all(kernel.made.template == "attention" and not kernel.made.note for kernel in joined)
    is_dearer = any("cycles estimated in one kernel" in reason for reason in reasons)  # on AVX2 one of these sizes
    assert joined or is_dearer or (keys == 40_000 and MIDDLES[name][1])


def test_blocks_of_keys_where_rows_are_long() -> None:
    """Whole rows of 100,000 scores fit no cache; those of 197 do, and need no sums that are scaled."""
    long, short = (plan_attention(AttentionDemand(Chain(2, 512, 64, keys, 64)), MACHINE, 2) for keys in (100_000, 197))
    assert long is not None
    assert long.keys < 1000
    assert long.rows > 14
    assert short is not None
    assert short.keys == 197
