"""Channels-last storage: the numbers stay, and data moves only where the design says so."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from backends.cpu.layout_policy import CpuLayouts
from backends.cuda.devices import A100
from backends.cuda.policies import CudaLayouts
from fusion.passes.layout import AssignLayouts
from tests.passes.modules import Build, apply, calls, canonical, module, names, normal, unchanged, weight

EXAMPLES = settings(max_examples=15, deadline=None, derandomize=True, database=None)
IMAGE = (2, 6, 8, 10)
CONVOLVED = (2, 12, 8, 10)


def conv(b: relax.BlockBuilder, x: relax.Var, channels: int = 12, seed: int = 0, **attrs: object) -> relax.Var:
    """Return a 3x3 convolution, whose result lies channels-last."""
    depth = int(x.ty.shape[1]) // int(attrs.get("groups", 1))
    return b.emit(op.nn.conv2d(x, weight(channels, depth, 3, 3, seed=seed), padding=1, **attrs))


def moves(build: Build, *arrays: np.ndarray) -> int:
    """Return how many transposes are left behind `build`, whose numbers must agree; a second pass adds none.

    Twice is not always the same code: a sum of two orders may follow its other operand.
    """
    after = apply(AssignLayouts(CpuLayouts(16)), build, list(arrays) or [normal(*IMAGE)], settles=False)
    count = names(after).count("permute_dims")
    assert names(AssignLayouts(CpuLayouts(16))(after)).count("permute_dims") <= count
    return count


Step = Callable[[relax.BlockBuilder, relax.Var], relax.Expr]
# What stands behind a convolution, and the transposes left: one into the convolution, one out of the module.
STEPS: dict[str, tuple[Step, int]] = {
    "relu": (lambda b, y: op.nn.relu(y), 2),
    "clip": (lambda b, y: op.clip(y, -0.5, 0.5), 2),
    "leaky": (lambda b, y: op.nn.leakyrelu(y, 0.1), 2),
    "bias": (lambda b, y: op.add(y, weight(12, 1, 1)), 2),
    "row": (lambda b, y: op.multiply(weight(10), y), 2),
    "rows": (lambda b, y: op.multiply(y, weight(8, 1)), 2),
    "batch": (lambda b, y: op.subtract(y, weight(2, 1, 1, 1)), 2),
    "scalar": (lambda b, y: op.divide(y, relax.const(np.float32(2))), 2),
    "one": (lambda b, y: op.divide(y, relax.const(np.float32([[2]]))), 2),
    "where": (lambda b, y: op.where(op.greater(y, relax.const(np.float32(0))), y, weight(12, 8, 10)), 2),
    "prelu": (lambda b, y: op.nn.prelu(y, weight(12), 1), 2),
    "prelu of rows": (lambda b, y: op.nn.prelu(y, weight(8), 2), 2),
    "max pool": (lambda b, y: op.nn.max_pool2d(y, (3, 3), (2, 2), (1, 1)), 2),
    "average pool": (lambda b, y: op.nn.avg_pool2d(y, (2, 2), (2, 2)), 2),
    "adaptive pool": (lambda b, y: op.nn.adaptive_avg_pool2d(y, (1, 1)), 1),
    "resize": (lambda b, y: op.image.resize2d(y, (16, 20), layout="NCHW", method="nearest_neighbor"), 2),
    "softmax of channels": (lambda b, y: op.nn.softmax(y, 1), 2),
    "softmax of columns": (lambda b, y: op.nn.softmax(y, -1), 2),
    "log softmax": (lambda b, y: op.nn.log_softmax(y, 2), 2),
    "cumsum": (lambda b, y: op.cumsum(y, 1), 2),
    "cumsum of all": (lambda b, y: op.cumsum(y), 2),
    "mean": (lambda b, y: op.mean(y, [2, 3], keepdims=True), 1),
    "mean without axes": (lambda b, y: op.mean(y, [2, 3]), 1),
    "sum of channels": (lambda b, y: op.sum(y, [1]), 1),
    "sum of channels, kept": (lambda b, y: op.sum(y, [-3], keepdims=True), 1),
    "max of columns": (lambda b, y: op.max(y, [3]), 2),
    "minimum of all": (lambda b, y: op.min(y), 2),
    "variance": (lambda b, y: op.variance(y, [1, 3]), 1),
    "argmax of channels": (lambda b, y: op.argmax(y, 1), 1),
    "argmax, kept": (lambda b, y: op.argmax(y, -1, keepdims=True), 2),
    "layer norm of columns": (lambda b, y: op.nn.layer_norm(y, weight(10), weight(10), [-1]), 2),
    "layer norm of channels": (lambda b, y: op.nn.layer_norm(y, weight(12), weight(12), [1]), 2),
    "layer norm of all": (lambda b, y: op.nn.layer_norm(y, weight(12, 8, 10), weight(12, 8, 10), [1, 2, 3]), 2),
    "layer norm of the image": (lambda b, y: op.nn.layer_norm(y, weight(8, 10), weight(8, 10), [2, 3]), 2),
    "group norm": (lambda b, y: op.nn.group_norm(y, weight(12), weight(12), 3, 1, [2, 3]), 2),
    "instance norm": (lambda b, y: op.nn.instance_norm(y, weight(12), weight(12), 1, [2, 3]), 2),
    "concat of channels": (lambda b, y: op.concat([y, op.nn.relu(y)], 1), 2),
    "concat of rows": (lambda b, y: op.concat([y, weight(2, 12, 3, 10)], -2), 2),
    "slice": (lambda b, y: op.strided_slice(y, [1, 3], [1, 9], [11, 1], [2, -3]), 2),
    "pad": (lambda b, y: op.nn.pad(y, [0, 1, 2, 0, 1, 1, 0, 3], pad_value=1.5), 2),
    "reshape apart": (lambda b, y: op.reshape(y, (2, 3, 4, 8, 2, 5)), 2),
    "reshape together": (lambda b, y: op.reshape(y, (2, 12, 80)), 2),
    "reshape across": (lambda b, y: op.reshape(y, (2, 96, 10)), 2),
    "flatten": (lambda b, y: op.reshape(op.nn.adaptive_avg_pool2d(y, (1, 1)), (2, 12)), 1),
    "flatten all": (lambda b, y: op.flatten(y), 2),
    "expand": (lambda b, y: op.expand_dims(y, [0, 3]), 2),
    "squeeze": (lambda b, y: op.squeeze(op.mean(y, [2], keepdims=True), [2]), 2),
    "to channels last": (lambda b, y: op.permute_dims(y, [0, 2, 3, 1]), 1),
    "reversed": (lambda b, y: op.permute_dims(y), 2),
    "gather": (lambda b, y: op.take(y, relax.const(np.array([1, 0, 3])), axis=1), 2),
}


@pytest.mark.parametrize("name", STEPS)
def test_behind_a_convolution(name: str) -> None:
    step, expected = STEPS[name]
    assert moves(lambda b, x: step(b, conv(b, x))) == expected


def test_convolutions_in_a_row_move_data_twice() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        first = b.emit(op.nn.relu(conv(b, x)))
        second = b.emit(op.add(conv(b, first, seed=1), weight(12, 1, 1)))
        return op.nn.relu(op.add(first, second))

    after = apply(AssignLayouts(CpuLayouts(16)), build, [normal(*IMAGE)])
    assert names(after).count("permute_dims") == 2
    assert {str(call.attrs.data_layout) for name, call in calls(after) if name == "nn.conv2d"} == {"NHWC"}


def test_grouped_and_depthwise_convolutions() -> None:
    assert moves(lambda b, x: conv(b, b.emit(op.nn.relu(conv(b, x))), groups=12)) == 2
    assert moves(lambda b, x: conv(b, x, groups=3)) == 2


WINDOWS: dict[str, Step] = {
    "depthwise": lambda b, x: conv(b, x, 6, groups=6),
    "max pool": lambda b, x: op.nn.max_pool2d(x, (3, 3), (2, 2), (1, 1), ceil_mode=True),
    "average pool": lambda b, x: op.nn.avg_pool2d(x, (3, 3), (2, 2), (1, 1)),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_over_row_major_planes_stay_row_major(name: str) -> None:
    assert moves(lambda b, x: op.nn.relu(b.emit(WINDOWS[name](b, x)))) == 0


def test_other_windows_over_row_major_planes_do_not() -> None:
    assert moves(lambda b, x: conv(b, x, groups=6)) == 2  # two output channels for each of the input
    assert moves(lambda b, x: op.nn.avg_pool2d(x, (3, 3), (2, 2), ceil_mode=True)) == 2
    assert moves(lambda b, x: op.nn.max_pool2d(x, (3, 3)), normal(*IMAGE).astype("float64")) == 2
    assert moves(lambda b, x: op.nn.max_pool2d(x, (3, 3)), normal(2, 1, 8, 10)) == 0  # either order
    assert moves(lambda b, x: op.nn.max_pool2d(x, (1, 17), (1, 17)), normal(2, 6, 8, 40)) == 2


def test_transposed_convolution() -> None:
    assert moves(lambda b, x: op.nn.conv2d_transpose(conv(b, x), weight(12, 5, 2, 2), strides=2)) == 2


def test_channel_shuffle_moves_data_once_more() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        split = b.emit(op.reshape(conv(b, x), (2, 3, 4, 8, 10)))
        turned = b.emit(op.permute_dims(split, [0, 2, 1, 3, 4]))
        return conv(b, b.emit(op.reshape(turned, CONVOLVED)), seed=1)

    assert moves(build) == 3


def test_patches_of_a_vision_transformer_stay_where_the_convolution_left_them() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        tokens = b.emit(op.permute_dims(op.reshape(conv(b, x), (2, 12, 80)), [0, 2, 1]))
        return op.matmul(op.add(tokens, weight(1, 80, 12)), weight(12, 7))

    assert moves(build) == 1


def test_split_and_its_parts() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        parts = b.emit(op.split(conv(b, x), [4, 5], axis=1))
        first, second = (b.emit(relax.TupleGetItem(parts, i)) for i in (0, 2))
        return relax.Tuple([b.emit(op.nn.relu(first)), b.emit(op.concat([second, first], 1))])

    assert moves(build) == 3


def test_sums_of_tensors_in_different_orders() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var, y: relax.Var) -> relax.Expr:
        return op.add(conv(b, x), y)

    assert moves(build, normal(*IMAGE), normal(*CONVOLVED, seed=1)) == 2  # row-major, as the output is
    assert moves(build, normal(*IMAGE), normal(10, seed=1)) == 2
    assert moves(build, normal(*IMAGE), normal(1, 12, 1, 1, seed=1)) == 2


def test_an_operand_of_lower_rank_may_itself_lie_in_another_order() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = conv(b, x)
        image = b.emit(op.mean(y, [0]))
        return op.add(op.multiply(y, image), b.emit(op.permute_dims(op.mean(y, [0, 1]), [0, 1])))

    moves(build)


def test_heads_of_attention_are_renamed_until_a_matmul_needs_them() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        q, k = (b.emit(op.permute_dims(op.reshape(op.matmul(x, weight(32, 32, seed=i)), (2, 9, 4, 8)), [0, 2, 1, 3]))
                for i in range(2))  # fmt: skip
        turned = b.emit(op.permute_dims(k, [0, 1, 3, 2]))
        context = b.emit(op.matmul(op.nn.softmax(op.matmul(q, turned)), q))
        return op.matmul(op.reshape(op.permute_dims(context, [0, 2, 1, 3]), (2, 9, 32)), weight(32, 16, seed=3))

    assert moves(build, normal(2, 9, 32)) == 4  # q for each of its two matmuls, k, the result


def test_patches_move_once_on_their_way_in_and_once_out() -> None:
    """MobileViT: pixels of the same place in their 2x2 patch attend to each other."""

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = conv(b, x)
        cut = b.emit(op.permute_dims(op.reshape(y, (2 * 12 * 4, 2, 5, 2)), [0, 2, 1, 3]))
        patches = b.emit(op.permute_dims(op.reshape(cut, (2, 12, 20, 4)), [0, 3, 2, 1]))
        tokens = b.emit(op.reshape(patches, (8, 20, 12)))
        for seed in range(2):
            normed = b.emit(op.nn.layer_norm(tokens, weight(12), weight(12), [-1]))
            tokens = b.emit(op.add(tokens, b.emit(op.matmul(normed, weight(12, 12, seed=seed)))))
        rows = b.emit(op.permute_dims(op.reshape(tokens, (2, 4, 20, 12)), [0, 3, 2, 1]))
        joined = b.emit(op.permute_dims(op.reshape(rows, (2 * 12 * 4, 5, 2, 2)), [0, 2, 1, 3]))
        return conv(b, b.emit(op.reshape(joined, CONVOLVED)), seed=3)

    assert moves(build) == 4  # the image in, patches, the image again, out
    after = apply(AssignLayouts(CpuLayouts(16)), build, [normal(*IMAGE)], settles=False)
    assert all([int(axis) for axis in call.attrs.axes] == [2] for name, call in calls(after) if name == "nn.layer_norm")


def test_a_norm_of_a_whole_image_reads_it_in_any_order() -> None:
    """PoolFormer writes a group norm of one group as an instance norm of the flattened image."""

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        flat = b.emit(op.reshape(conv(b, x), (2, 1, 960)))
        normed = b.emit(op.nn.instance_norm(flat, weight(1), weight(1), 1, [2]))
        return conv(b, b.emit(op.reshape(normed, CONVOLVED)), seed=1)

    assert moves(build) == 2


def test_norms_of_several_flattened_channels_want_an_order() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        flat = b.emit(op.reshape(conv(b, x), (2, 3, 320)))
        return op.nn.instance_norm(flat, weight(3), weight(3), 1, [2])

    assert moves(build) == 2


def test_a_reflecting_padding_stays_channels_last() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        rows = b.emit(op.take(conv(b, x), relax.const(np.array([1, *range(8), 6])), axis=2))
        padded = b.emit(op.take(rows, relax.const(np.array([1, *range(10), 8])), axis=3))
        return op.nn.conv2d(padded, weight(12, 12, 3, 3, seed=1))

    assert moves(build) == 2


def test_an_mlp_across_rows_and_one_within_move_nothing() -> None:
    """MLP-Mixer: the weights of the one across are the left operand, and the residual stays row-major."""

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        for seed in range(2):
            turned = b.emit(op.permute_dims(op.nn.layer_norm(x, weight(32), weight(32), [-1]), [0, 2, 1]))
            hidden = b.emit(op.nn.relu(op.add(op.matmul(turned, weight(48, 64, seed=seed)), weight(64))))
            across = b.emit(op.permute_dims(op.matmul(hidden, weight(64, 48, seed=seed)), [0, 2, 1]))
            x = b.emit(op.add(x, across))
            x = b.emit(op.add(x, op.matmul(op.nn.layer_norm(x, weight(32), weight(32), [-1]), weight(32, 32))))
        return x

    assert moves(build, normal(2, 48, 32)) == 0


def test_columns_that_leave_most_lanes_empty_are_moved() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return op.matmul(b.emit(op.permute_dims(x, [0, 2, 1])), weight(600, 600))

    assert moves(build, normal(4, 600, 3)) == 1


def test_depth_to_space_works_on_its_parts_before_they_move() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        parts = b.emit(op.permute_dims(op.reshape(conv(b, x), (2, 3, 2, 2, 8, 10)), [0, 1, 4, 2, 5, 3]))
        image = b.emit(op.reshape(parts, (2, 3, 16, 20)))
        bent = b.emit(op.add(op.multiply(op.nn.relu(image), weight(3, 1, 1)), relax.const(np.float32(0.5))))
        return op.nn.conv2d(bent, weight(12, 3, 3, 3, seed=1))

    assert moves(build) == 3
    order = names(apply(AssignLayouts(CpuLayouts(16)), build, [normal(*IMAGE)], settles=False))
    assert order.index("nn.relu") < [i for i, name in enumerate(order) if name == "permute_dims"][1]


@st.composite
def chains(draw: st.DrawFn) -> list[tuple[str, tuple[int, ...]]]:
    """Draw reshapes and transposes of an image of CONVOLVED, whose axes always end between prime factors."""
    axes = [[2], [2, 2, 3], [2, 2, 2], [2, 5]]
    steps: list[tuple[str, tuple[int, ...]]] = []
    for _ in range(draw(st.integers(1, 5))):
        if draw(st.booleans()):
            turn = draw(st.permutations(range(len(axes))))
            axes = [axes[axis] for axis in turn]
            steps.append(("permute", tuple(turn)))
        else:
            primes = [prime for axis in axes for prime in axis]
            cuts = sorted(draw(st.sets(st.integers(1, len(primes) - 1), max_size=5)))
            axes = [primes[i:j] for i, j in zip([0, *cuts], [*cuts, len(primes)], strict=True)]
            steps.append(("reshape", tuple(prod(axis) for axis in axes)))
    return steps


@EXAMPLES
@given(chains())
def test_reshapes_and_transposes_in_a_row_move_data_once(steps: list[tuple[str, tuple[int, ...]]]) -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = conv(b, x)
        for kind, numbers in steps:
            y = b.emit(op.permute_dims(y, list(numbers)) if kind == "permute" else op.reshape(y, numbers))
        return op.take(y, relax.const(np.arange(int(y.ty.shape[0]))), axis=0)

    assert moves(build) <= 2


def test_transposes_that_cancel_vanish() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return op.permute_dims(op.nn.relu(op.permute_dims(x, [0, 2, 3, 1])), [0, 3, 1, 2])

    assert moves(build) == 0


def test_pooling_and_resize_of_other_layouts_are_left_alone() -> None:
    unchanged(AssignLayouts(CpuLayouts(16)), lambda b, x: op.nn.max_pool2d(x, (2, 2), layout="NHWC"), [normal(*IMAGE)])


def test_graphs_without_images_are_left_alone() -> None:
    unchanged(AssignLayouts(CpuLayouts(16)), lambda b, x: op.nn.relu(op.matmul(x, weight(8, 5))), [normal(3, 8)])
    unchanged(AssignLayouts(CpuLayouts(16)), lambda b, x: op.nn.softmax(op.add(x, weight(3, 1)), 1), [normal(3, 8)])


def test_convolutions_without_an_anchor_stay_row_major() -> None:
    def variable(b: relax.BlockBuilder, x: relax.Var, w: relax.Var) -> relax.Expr:
        return op.nn.conv2d(x, w, padding=1, out_dtype="float32")

    of_the_run = [normal(*IMAGE).astype("bfloat16"), normal(4, 6, 3, 3).astype("bfloat16")]
    unchanged(AssignLayouts(CpuLayouts(16)), variable, of_the_run)
    half = relax.const(normal(4, 6, 3, 3).astype("float16"))
    unchanged(AssignLayouts(CpuLayouts(16)), lambda b, x: op.nn.conv2d(x, half), [normal(*IMAGE).astype("float16")])
    half = relax.const(normal(6, 4, 3, 3).astype("float16"))
    unchanged(
        AssignLayouts(CpuLayouts(16)),
        lambda b, x: op.nn.conv2d_transpose(x, half, out_dtype="float32"),
        [normal(*IMAGE).astype("float16")],
    )


def test_convolutions_by_weights_of_the_run_run_channels_last() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var, w: relax.Var) -> relax.Expr:
        turned = b.emit(op.permute_dims(w, [1, 0, 2, 3]))
        return op.nn.conv2d(x, turned, padding=1)

    after = apply(AssignLayouts(CpuLayouts(16)), build, [normal(*IMAGE), normal(6, 4, 3, 3)], settles=False)
    (conv,) = [call for name, call in calls(after) if name == "nn.conv2d"]
    assert (conv.attrs.data_layout, conv.attrs.kernel_layout) == ("NHWC", "OIHW")
    assert [int(extent) for extent in conv.args[1].ty.shape] == [4, 6, 3, 3]


@pytest.mark.parametrize(
    ("dtype", "of_weights", "result"),
    [
        ("float32", "float32", "float32"),
        ("bfloat16", "bfloat16", "float32"),
        ("uint8", "int8", "int32"),
        ("int16", "int16", "int32"),
    ],
)
def test_convolutions_with_an_anchor_run_channels_last(dtype: str, of_weights: str, result: str) -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(IMAGE, dtype))
    weights = relax.const(tvm.runtime.tensor(normal(4, 6, 3, 3).astype(of_weights)))
    with builder.function("main", [x]):
        with builder.dataflow():
            output = builder.emit_output(op.nn.conv2d(x, weights, out_dtype=result))
        builder.emit_func_output(output)
    assert 'data_layout="NHWC"' in AssignLayouts(CpuLayouts(16))(builder.get()).script()


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("result", ["float32", "float16"])
@pytest.mark.parametrize("conv", [op.nn.conv2d, op.nn.conv2d_transpose])
def test_half_precision_runs_channels_last_where_the_device_multiplies_it(
    conv: Callable[..., relax.Expr], result: str, is_known: bool
) -> None:
    arrays = [normal(*IMAGE).astype("float16"), normal(6, 6, 3, 3).astype("float16")]
    known = relax.const(arrays[1])

    def build(b: relax.BlockBuilder, x: relax.Var, *weights: relax.Var) -> relax.Expr:
        return op.nn.relu(b.emit(conv(b.emit(op.nn.relu(x)), *(weights or [known]), padding=1, out_dtype=result)))

    given = arrays[:1] if is_known else arrays
    after = canonical(AssignLayouts(CudaLayouts(A100))(module(build, given)))
    convolutions = [call for name, call in calls(after) if name.startswith("nn.conv2d")]
    assert [(call.attrs.data_layout, call.attrs.out_layout) for call in convolutions] == [("NHWC", "NHWC")]
    assert names(after).count("permute_dims") == 2
    unchanged(AssignLayouts(CpuLayouts(16)), build, given)


@pytest.mark.parametrize("rank", [1, 3])
def test_pooling_of_other_ranks(rank: int) -> None:
    shape = (2, 5, 6, 7, 8)[: rank + 2]
    pool = getattr(op.nn, f"max_pool{rank}d")
    moves(lambda b, x: op.nn.relu(pool(x, (2,) * rank, (2,) * rank)), normal(*shape))


def test_several_outputs_and_returned_inputs() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = conv(b, x)
        return relax.Tuple([x, y, y, b.emit(op.permute_dims(y, [0, 2, 3, 1]))])

    assert moves(build) <= 3
