"""Attention in one kernel, run on the emulator at points and at the one that is chosen, against float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from backends.cuda.codegen.generate import generate_kernel
from backends.cuda.devices import A100
from backends.cuda.kernels.attention.emit import emit_attention
from backends.cuda.kernels.attention.plan import AttentionTile, FlashPlan, choose, estimate, estimate_apart
from backends.cuda.kernels.attention.read import read_attention
from backends.cuda.kernels.matmul.plan import cores_of
from fusion.declined import Declined
from tests.backends.cpu.kernels.memory_bound import prim_func
from tests.backends.cuda.emulator.emulate import ORDERS, emulate

SCALE = 0.25
Between = Callable[..., relax.Expr]


def attention(between: Between = lambda scores, *rest: scores, behind: Between = lambda sums: sums) -> Between:
    """Return what builds softmax(between(queries x keys)) x values with keys that lie row by row."""

    def build(b: relax.BlockBuilder, q: relax.Var, k: relax.Var, v: relax.Var, *rest: relax.Var) -> relax.Expr:
        axes = [*range(len(k.ty.shape) - 2), len(k.ty.shape) - 1, len(k.ty.shape) - 2]
        scores = op.matmul(q, op.permute_dims(k, axes))
        return behind(op.matmul(op.nn.softmax(between(scores, *rest), -1), v))

    return build


def run(
    build: Between,
    *arrays: np.ndarray,
    point: AttentionTile | None = None,
    orders: Sequence[int] = ORDERS[:2],
    tfloat32: bool = False,
) -> np.ndarray:
    """Return the output, which begins as NaN, and check the banks of shared memory and the sectors of memory."""
    func = prim_func(build, arrays)
    region = read_attention(func)
    cores = cores_of(region.scores, tfloat32=tfloat32)
    plan = choose(region, cores, A100) if point is None else FlashPlan(region, cores, point)
    kernel = generate_kernel(emit_attention(func, plan), "attention", "sm_80")
    *inputs, output = func.params
    shape = tuple(int(dim) for dim in output.ty.shape)
    named = dict(zip((param.name for param in inputs), arrays, strict=True))
    named[output.name] = np.full(shape, np.nan, np.dtype(str(output.ty.dtype.dtype)))
    done = emulate(kernel, {name: named[name] for name in kernel.parameters}, orders)
    assert done.counts.worst_conflict <= 2
    return done.arrays[output.name]


def inputs(*shapes: tuple[int, ...], dtype: str = "float16") -> list[np.ndarray]:
    rng = np.random.default_rng(sum(map(sum, shapes)))
    return [rng.standard_normal(shape).astype(np.dtype(dtype)) for shape in shapes]


def expected(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, logits: Callable[[np.ndarray], np.ndarray] = lambda scores: scores
) -> np.ndarray:
    q, k, v = (each.astype("float64") for each in (q, k, v))
    scores = logits(q @ k.swapaxes(-1, -2))
    grown = np.exp(scores - scores.max(-1, keepdims=True))
    return grown / grown.sum(-1, keepdims=True) @ v


_DIGITS = {"float16": 2**-10, "bfloat16": 2**-7, "float32": 2**-17, "tfloat32": 2**-9}


def check(found: np.ndarray, wanted: np.ndarray, dtype: str = "") -> None:
    digits = _DIGITS[dtype or str(found.dtype)]
    np.testing.assert_allclose(found.astype("float64"), wanted, rtol=2 * digits, atol=2 * digits)


_SIZES = [
    (AttentionTile(1, 32, 2), 16, 32, 16, 16),
    (AttentionTile(2, 32, 3), 35, 70, 32, 16),
    (AttentionTile(1, 32, 2), 9, 5, 24, 40),
    (None, 1, 77, 64, 64),
    (AttentionTile(4, 64, 2), 70, 200, 64, 64),
    (None, 50, 50, 80, 80),
]


@pytest.mark.parametrize(
    ("dtype", "point", "rows", "keys", "depth", "channels"),
    [
        *(("float16", *sizes) for sizes in _SIZES),
        *((dtype, *sizes) for dtype in ("bfloat16", "float32", "tfloat32") for sizes in _SIZES[1:4]),
    ],
)
def test_rows_keys_and_channels_of_any_number(
    dtype: str, point: AttentionTile | None, rows: int, keys: int, depth: int, channels: int
) -> None:
    shapes = (2, rows, depth), (2, keys, depth), (2, keys, channels)
    arrays = inputs(*shapes, dtype=dtype.removeprefix("t"))
    found = run(attention(), *arrays, point=point, tfloat32=dtype == "tfloat32")
    check(found, expected(*arrays), dtype)


def test_masks_and_scales_between_the_products() -> None:
    q, k, v = inputs((2, 3, 20, 16), (2, 3, 40, 16), (2, 3, 40, 16))
    mask = np.where(np.random.default_rng(1).random((2, 1, 1, 40)) < 0.3, -np.inf, 0).astype("float16")
    build = attention(lambda scores, mask: op.add(op.multiply(scores, relax.const(SCALE, "float16")), mask))
    found = run(build, q, k, v, mask, point=AttentionTile(2, 32, 2))
    check(found, expected(q, k, v, lambda scores: scores * SCALE + mask.astype("float64")))


def test_masks_that_the_kernel_makes_itself() -> None:
    """Of numbers that say which keys are kept, and of ones that are widened."""
    q, k, v = inputs((2, 20, 16), (2, 40, 16), (2, 40, 16))
    kept = (np.random.default_rng(2).random((2, 1, 40)) < 0.6).astype("float16")
    bias = inputs((1, 20, 40))[0]

    def between(scores: relax.Expr, kept: relax.Expr, bias: relax.Expr) -> relax.Expr:
        left_out = op.multiply(op.subtract(relax.const(1, "float16"), kept), relax.const(-30000, "float16"))
        added = op.add(op.astype(scores, "float32"), op.astype(op.add(left_out, bias), "float32"))
        return op.astype(added, "float16")

    found = run(attention(between), q, k, v, kept, bias, point=AttentionTile(2, 32, 2))
    wide = (1 - kept.astype("float64")) * -30000 + bias
    check(found, expected(q, k, v, lambda scores: scores + wide))


@pytest.mark.parametrize(
    ("shape", "per_score"), [((1, 1, 512, 512), 2), ((2, 4, 512, 512), 2), ((2, 1, 1, 512), 0)]
)
def test_the_estimate_counts_masks_that_differ_by_row_and_key(shape: tuple[int, ...], per_score: int) -> None:
    """In the one kernel, where each block reads its rows of them, and in the rows between two products."""
    arrays = [*inputs(*[(2, 4, 512, 64)] * 3), np.zeros(shape, "float16")]
    plain = read_attention(prim_func(attention(), arrays[:3]))
    masked = read_attention(prim_func(attention(op.add), arrays))
    assert (plain.mask_bytes, plain.held_mask_bytes) == (0, 0)
    assert (masked.mask_bytes, masked.held_mask_bytes) == (per_score, per_score * math.prod(shape))
    point, slow = AttentionTile(4, 64, 2), replace(A100, l2_cycle_bytes=64)
    without, other = (FlashPlan(each, cores_of(each.scores, tfloat32=False), point) for each in (plain, masked))
    assert (estimate_apart(other, A100) > estimate_apart(without, A100)) == (per_score > 0)
    times = [estimate(each, slow) for each in (without, other)]
    read = per_score * math.prod((2, 4, 512, 512)) / (1e9 * slow.l2_gbs * min(slow.sms, other.blocks))
    assert times[0] is not None
    assert times[1] == pytest.approx(times[0] + read, rel=1e-6)


def test_masked_tiles_count_nothing_and_rows_without_keys_are_nan() -> None:
    q, k, v = inputs((1, 16, 16), (1, 96, 16), (1, 96, 16))
    mask = np.zeros((1, 16, 96), "float16")
    mask[:, :, :40] = mask[:, 5] = -np.inf
    found = run(attention(op.add), q, k, v, mask, point=AttentionTile(1, 32, 2))
    wanted = expected(q[:, [0]], k, v, lambda scores: scores + mask[:, [0]].astype("float64"))
    check(found[:, [0]], wanted)
    assert np.isnan(found[:, 5]).all()
    assert not np.isnan(np.delete(found, 5, axis=1)).any()


def masked(scores: relax.Expr, kept: relax.Expr, least: relax.Expr) -> relax.Expr:
    return op.where(kept, scores, least)


def nothing(dtype: str) -> np.ndarray:
    """Return what takes the place of scores that a mask does not keep."""
    return np.full((1,), -np.inf, np.dtype(dtype))


def causal(rows: int, keys: int) -> np.ndarray:
    return np.arange(keys)[None, :] <= np.arange(rows)[:, None]


_FROM = np.arange(130)
_KEPT = {
    "causal": (causal(150, 150), AttentionTile(2, 32, 2)),
    "causal, three stages": (causal(70, 100), AttentionTile(1, 32, 3)),
    "a band": (np.abs(_FROM[:, None] - _FROM) < 9, AttentionTile(2, 32, 2)),
    "the same keys for all rows": ((np.arange(200) % 96 < 20)[None], AttentionTile(4, 64, 2)),
    "all": (np.ones((70, 70), bool), AttentionTile(1, 32, 2)),
}


@pytest.mark.parametrize(
    ("name", "dtype"),
    [*((name, "float16") for name in _KEPT), ("causal, three stages", "float32"), ("a band", "float32")],
)
def test_tiles_that_a_mask_leaves_out_are_not_read(name: str, dtype: str) -> None:
    """Of the first block they are NaN in a second run, which weights of 0 would not hide."""
    kept, point = _KEPT[name]
    rows, keys = max(kept.shape[0], 70), kept.shape[1]  # one row of a mask is that of all
    q, k, v = inputs((2, rows, 16), (2, keys, 16), (2, keys, 24), dtype=dtype)
    found = run(attention(masked), q, k, v, kept[None], nothing(dtype), point=point, orders=ORDERS[1:3])
    check(found, expected(q, k, v, lambda scores: np.where(kept, scores, -np.inf)))
    block = point.warps * 16
    tiles = [kept[:block, tile : tile + point.keys].any() for tile in range(0, keys, point.keys)]
    assert all(tiles) == (name == "all")
    unread = ~np.repeat(tiles, point.keys)[:keys]
    k[:, unread], v[:, unread] = np.nan, np.nan
    again = run(attention(masked), q, k, v, kept[None], nothing(dtype), point=point, orders=ORDERS[:1])
    np.testing.assert_array_equal(again[:, :block], found[:, :block])


def test_blocks_of_which_a_mask_leaves_nothing_are_nan_as_rows_without_keys_are() -> None:
    q, k, v = inputs((1, 64, 16), (1, 96, 16), (1, 96, 16))
    kept = np.zeros((1, 64, 96), bool)
    kept[:, 40:, 3] = True
    found = run(attention(masked), q, k, v, kept, nothing("float16"), point=AttentionTile(1, 32, 2))
    assert np.isnan(found[:, :40]).all()
    check(found[:, 40:], np.broadcast_to(v[:, 3:4], (1, 24, 16)).astype("float64"))


def test_what_scores_say_themselves_leaves_out_no_tile() -> None:
    """A condition on scores, and numbers that are added: with a score of NaN neither is -inf."""
    q, k, v, mask = inputs((1, 16, 16), (1, 96, 16), (1, 96, 16), (1, 1, 96))
    least = nothing("float16")
    positive = attention(lambda scores, most, least: op.where(op.greater(scores, most), scores, least))
    assert not read_attention(prim_func(positive, (q, k, v, least, least))).is_masked
    assert not read_attention(prim_func(attention(op.add), (q, k, v, mask))).is_masked
    assert read_attention(prim_func(attention(masked), (q, k, v, mask > 0, least))).is_masked


def test_a_mask_of_other_numbers_leaves_out_no_tile() -> None:
    q, k, v = inputs((1, 16, 16), (1, 96, 16), (1, 96, 16))
    kept, least = np.zeros((1, 16, 96), bool), np.full((1,), -4, "float16")
    found = run(attention(masked), q, k, v, kept, least, point=AttentionTile(1, 32, 2))
    check(found, np.broadcast_to(v.astype("float64").mean(1, keepdims=True), found.shape))


def test_random_sizes_and_masks_are_what_float64_says() -> None:
    random = np.random.default_rng(2243)
    for dtype in ("float16", "float32", "float16", "bfloat16"):
        batch, rows, keys, depth, channels = (int(n) for n in random.integers(1, (4, 90, 170, 70, 70)))
        q, k, v = inputs((batch, rows, depth), (batch, keys, depth), (batch, keys, channels), dtype=dtype)
        q, kept = (q / np.sqrt(depth)).astype(q.dtype), random.random((1, rows, keys)) < random.random()
        kept[..., int(random.integers(keys))] = True
        found = run(attention(masked), q, k, v, kept, nothing(dtype))
        check(found, expected(q, k, v, lambda scores, kept=kept: np.where(kept, scores, -np.inf)))


def test_nan_and_infinity_reach_the_rows_that_they_are_in() -> None:
    q, k, v = inputs((1, 16, 16), (1, 40, 16), (1, 40, 16))
    q[0, 3, 1], q[0, 7] = np.nan, 0
    found = run(attention(), q, k, v, point=AttentionTile(1, 32, 2))
    assert np.isnan(found[0, 3]).all()
    assert not np.isnan(np.delete(found, 3, axis=1)).any()


def test_what_is_behind_is_computed_in_the_kernel() -> None:
    arrays = inputs((2, 20, 16), (2, 40, 16), (2, 40, 16))
    found = run(attention(behind=lambda sums: op.nn.relu(op.add(sums, relax.const(0.5, "float16")))), *arrays)
    check(found, np.maximum(expected(*arrays) + 0.5, 0))


@pytest.mark.parametrize("dtype", _DIGITS)
def test_keys_that_lie_turned_and_one_row_of_keys_for_several_heads(dtype: str) -> None:
    q, k, v = inputs((2, 4, 20, 16), (1, 16, 48), (48, 32), dtype=dtype.removeprefix("t"))

    def build(b: relax.BlockBuilder, q: relax.Var, k: relax.Var, v: relax.Var) -> relax.Expr:
        return op.matmul(op.nn.softmax(op.matmul(q, k), -1), v)

    found = run(build, q, k, v, point=AttentionTile(2, 32, 2), tfloat32=dtype == "tfloat32")
    check(found, expected(q, k.swapaxes(-1, -2), v), dtype)


@pytest.mark.parametrize("dtype", ["float32", "tfloat32"])
def test_values_that_lie_turned(dtype: str) -> None:
    q, k, v = inputs((2, 20, 16), (2, 48, 16), (2, 32, 48), dtype="float32")

    def build(b: relax.BlockBuilder, q: relax.Var, k: relax.Var, v: relax.Var) -> relax.Expr:
        turned = [op.permute_dims(each, [0, 2, 1]) for each in (k, v)]
        return op.matmul(op.nn.softmax(op.matmul(q, turned[0]), -1), turned[1])

    found = run(build, q, k, v, point=AttentionTile(2, 32, 2), tfloat32=dtype == "tfloat32")
    check(found, expected(q, k, v.swapaxes(-1, -2)), dtype)


def test_results_that_are_stored_head_by_head_are_rows_of_all_heads() -> None:
    """Of heads of 24 numbers, a thread stores 8 at once."""
    arrays = inputs((2, 3, 20, 16), (2, 3, 40, 16), (2, 3, 40, 24))
    build = attention(behind=lambda sums: op.permute_dims(sums, [0, 2, 1, 3]))
    check(run(build, *arrays, point=AttentionTile(2, 32, 2)), expected(*arrays).transpose(0, 2, 1, 3))


@pytest.mark.parametrize(
    ("build", "dtype", "reason"),
    [
        (attention(), "float64", "it multiplies float64"),
        (lambda b, q, k, v: op.matmul(op.nn.softmax(op.matmul(q, k), -2), v), "float16", "softmax"),
        (lambda b, q, k, v: op.nn.softmax(op.matmul(q, k), -1), "float16", "two reductions"),
        (lambda b, q, k, v: op.matmul(v, op.nn.softmax(op.matmul(q, k), -1)), "float16", "second product"),
    ],
)
def test_what_it_does_not_compute_is_declined(build: Between, dtype: str, reason: str) -> None:
    arrays = inputs((2, 16, 16), (2, 16, 16), (2, 16, 16), dtype=dtype)
    with pytest.raises(Declined, match=reason):
        read_attention(prim_func(build, arrays))


def test_scores_may_be_more_than_an_int32_counts_and_what_is_read_of_memory_may_not() -> None:
    q, k, v, mask = (np.broadcast_to(np.float16(0), (1, 50_000, size)) for size in (16, 16, 16, 50_000))
    assert read_attention(prim_func(attention(), (q, k, v))).scores.columns == 50_000
    with pytest.raises(Declined, match="more than an int32"):
        read_attention(prim_func(attention(op.add), (q, k, v, mask)))


def test_all_orders_of_threads_agree() -> None:
    arrays = inputs((1, 40, 32), (1, 100, 32), (1, 100, 32))
    check(run(attention(), *arrays, point=AttentionTile(2, 32, 3), orders=ORDERS), expected(*arrays))
    arrays = [array.astype("float32") for array in arrays]
    check(run(attention(), *arrays, point=AttentionTile(2, 32, 2), orders=ORDERS), expected(*arrays))


@pytest.mark.parametrize("dtype", _DIGITS)
@pytest.mark.parametrize(
    ("shape", "hidden", "channels", "point"),
    [
        ((2, 19, 24), 70, 40, AttentionTile(2, 32, 2)),
        ((1, 50, 48), 96, 48, AttentionTile(1, 64, 3)),
        ((7, 16), 33, 20, AttentionTile(1, 32, 2)),
    ],
)
def test_an_mlp_keeps_what_is_between_its_layers_in_registers(
    shape: tuple[int, ...], hidden: int, channels: int, point: AttentionTile, dtype: str
) -> None:
    narrow = dtype.removeprefix("t")
    x, up, bias, down, behind = inputs(
        shape, (shape[-1], hidden), (hidden,), (hidden, channels), (*shape[:-1], channels), dtype=narrow
    )
    up, down = (up / 4).astype(narrow), (down / 4).astype(narrow)

    def build(b: relax.BlockBuilder, *given: relax.Var) -> relax.Expr:
        inner = op.nn.gelu(op.add(op.matmul(given[0], given[1]), given[2]))
        return op.add(op.matmul(inner, given[3]), given[4])

    orders = ORDERS if hidden == 70 else ORDERS[1:3]  # one of the points in all
    found = run(build, x, up, bias, down, behind, point=point, orders=orders, tfloat32=dtype == "tfloat32")
    wide = [each.astype("float64") for each in (x, up, bias, down, behind)]
    inner = wide[0] @ wide[1] + wide[2]
    inner = inner * np.vectorize(math.erfc)(-inner * math.sqrt(0.5)) / 2
    check(found, inner @ wide[3] + wide[4], dtype)


def test_nan_and_infinity_between_the_layers_reach_their_rows() -> None:
    x, up, down = inputs((20, 16), (16, 40), (40, 16))
    x[3, 1] = np.nan

    def build(b: relax.BlockBuilder, x: relax.Var, up: relax.Var, down: relax.Var) -> relax.Expr:
        return op.matmul(op.nn.relu(op.matmul(x, up)), down)

    found = run(build, x, up, down, point=AttentionTile(1, 32, 2))
    assert np.isnan(found[3]).all()
    assert not np.isnan(np.delete(found, 3, axis=0)).any()
