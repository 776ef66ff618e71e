"""Passes over the imported graph: constants, one-dimensional convolutions and weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
import tvm_ffi
from tvm import relax
from tvm.relax import op

from backends.cpu.machine import Machine
from backends.cpu.rounding_policy import CpuRounding
from fusion.constants import constant
from fusion.passes.fold_constants import FoldConstants
from fusion.passes.lift_weights import lift_weights
from fusion.passes.split_conv3d import SplitConv3d
from fusion.passes.split_conv3d_transpose import SplitConv3dTranspose
from fusion.passes.split_pool3d import SplitPool3d
from fusion.passes.widen_convolutions import WidenConvolutions
from fusion.passes.widen_half import WidenHalf
from tests.passes.modules import apply, calls, evaluate, evaluate_both, module, names, normal, unchanged, weight

IMAGE = normal(2, 4, 6, 7)


# --- FoldConstants ---


def test_chains_of_constants_are_computed() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        turned = b.emit(op.permute_dims(b.emit(op.reshape(weight(3, 8), (8, 3))), [1, 0]))
        return op.add(x, b.emit(op.sqrt(b.emit(op.multiply(turned, turned)))))

    assert names(apply(FoldConstants(), build, [normal(3, 8)])) == ["add"]


def test_constants_of_bfloat16_are_moved_and_widened_but_not_computed() -> None:
    """A bias of bfloat16 is widened for sums: that took a kernel in every call."""
    array = normal(8).astype(ml_dtypes.bfloat16)

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        wide = b.emit(op.astype(b.emit(op.reshape(constant(array), (8, 1))), "float32"))
        doubled = b.emit(op.add(constant(array), constant(array)))
        return op.add(op.add(x, wide), op.astype(doubled, "float32"))

    made = apply(FoldConstants(), build, [normal(8, 8)])
    assert names(made).count("reshape") == 0
    assert names(made).count("astype") == 1


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide"])
def test_combinations_of_constants(name: str) -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return op.maximum(x, b.emit(getattr(op, name)(weight(3, 1), weight(4, seed=1))))

    assert names(apply(FoldConstants(), build, [normal(3, 4)])) == ["maximum"]


@pytest.mark.parametrize(
    "part", [([1], [2], [6]), ([0, -1], [0, -2], [2, 9]), ([1], [0], [7], [3]), ([1], [-1], [-9], [-2])]
)
def test_slices_of_constants(part: tuple[list[int], ...]) -> None:
    """The biases of a recurrent network are two halves of one tensor."""
    whole = weight(3, 8)

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return op.add(x, b.emit(op.sum(b.emit(op.strided_slice(whole, *part)))))

    assert names(apply(FoldConstants(), build, [normal(2)])) == ["sum", "add"]


def test_integers_are_divided_as_integers() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        quotient = op.divide(relax.const(np.array([7, 9], "int64")), relax.const(np.array([2, 2], "int64")))
        return op.add(x, op.astype(b.emit(quotient), "float32"))

    assert names(apply(FoldConstants(), build, [normal(2)])) == ["add"]


def test_indices_that_count_from_the_end_of_a_known_shape() -> None:
    """PyTorch's gather of ONNX: shape, less, take, add and where, all of them known."""

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        indices = constant(np.array([[1, -1, 0], [-2, 3, 3]]))
        size = b.emit(op.take(b.emit(op.shape_to_tensor(b.emit(op.shape_of(x)))), constant(np.array(-1)), 0, "wrap"))
        negative = b.emit(op.less(indices, constant(np.array(0))))
        known = b.emit(op.where(negative, b.emit(op.add(indices, size)), indices))
        return op.multiply(b.emit(op.gather_elements(x, known, 1)), b.emit(op.gather_elements(weight(2, 5), known, 1)))

    assert names(apply(FoldConstants(), build, [normal(2, 5)])) == ["gather_elements", "multiply"]


def test_constants_do_not_grow_by_broadcasting() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return op.add(x, b.emit(op.add(weight(400, 1), weight(1, 400))))

    unchanged(FoldConstants(), build, [normal(400, 400)])


def test_what_is_not_known_or_not_listed_stays() -> None:
    unchanged(FoldConstants(), lambda b, x: op.reshape(x, (4, 3)), [normal(3, 4)])
    unchanged(FoldConstants(), lambda b, x: op.add(x, b.emit(op.exp(weight(4)))), [normal(3, 4)])
    bfloat = relax.const(np.zeros((2, 3), ml_dtypes.bfloat16))
    unchanged(FoldConstants(), lambda b, x: op.add(op.astype(x, "bfloat16"), op.add(bfloat, bfloat)), [normal(2, 3)])


@pytest.mark.parametrize("length", [9, 300])
def test_causal_masks_are_known(length: int) -> None:
    """torch makes them in every program, of positions. Of 300 the distances alone are more than is kept."""

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        keys = b.emit(op.expand_dims(b.emit(op.arange(0, length, 1, "int64")), 0))
        queries = b.emit(op.expand_dims(b.emit(op.arange(length)), 1))
        past = b.emit(op.less_equal(b.emit(op.subtract(keys, queries)), constant(np.array(0))))
        kept = b.emit(op.logical_and(past, b.emit(op.full((length, length), relax.const(True, "bool")))))
        bias = b.emit(op.where(kept, relax.const(0.0), relax.const(-9.0)))
        return op.add(x, bias)

    assert names(apply(FoldConstants(), build, [normal(length)])) == ["add"]
    kept = names(FoldConstants(generators=False)(module(build, [normal(length)])))
    assert kept == names(module(build, [normal(length)]))


def test_what_is_made_of_a_mask_grows_no_further() -> None:
    """A product of four times the elements was a constant, of which one of sixteen times was made. A second pass takes
    the mask for one that the model gives."""

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        kept = b.emit(op.less_equal(b.emit(op.arange(300)), b.emit(op.expand_dims(b.emit(op.arange(300)), 1))))
        bias = b.emit(op.where(kept, relax.const(0.0), relax.const(-9.0)))
        return op.add(x, b.emit(op.multiply(bias, weight(4, 1, 1))))

    assert names(apply(FoldConstants(), build, [normal(300)], settles=False)) == ["multiply", "add"]


@pytest.mark.parametrize("maker", [op.full, lambda shape, value: op.broadcast_to(value, shape)])
def test_what_is_made_of_copies_is_known_unless_sizes_are_open(maker: Callable[..., relax.Expr]) -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return op.add(x, b.emit(op.multiply(b.emit(maker((3, 4), relax.const(2.0))), relax.const(2.0))))

    assert names(apply(FoldConstants(), build, [normal(3, 4)])) == ["add"]
    unchanged(FoldConstants(generators=False), build, [normal(3, 4)])


def test_what_is_one_value_stays() -> None:
    unchanged(FoldConstants(), lambda b, x: op.add(x, b.emit(op.full((3, 4), relax.const(2.0)))), [normal(3, 4)])


# --- WidenConvolutions ---


@pytest.mark.parametrize(("groups", "dilation"), [(1, 1), (1, 3), (2, 2), (4, 1)])
def test_one_dimensional_convolutions_become_images_of_height_one(groups: int, dilation: int) -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return op.nn.conv1d(x, weight(8, 4 // groups, 3), strides=2, padding=(2, 1), dilation=dilation, groups=groups)

    assert names(apply(WidenConvolutions(), build, [normal(2, 4, 19)])) == ["expand_dims", "nn.conv2d", "squeeze"]


@pytest.mark.parametrize(
    ("groups", "dilation", "behind", "padding"),
    [(1, 1, 0, (0, 0)), (1, 3, 1, (2, 1)), (2, 2, 0, (1, 1)), (4, 1, 1, (2, 1))],
)
def test_one_dimensional_transposed_convolutions_too(
    groups: int, dilation: int, behind: int, padding: tuple[int, int]
) -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return op.nn.conv1d_transpose(
            x, weight(4, 8 // groups, 4), 2, padding, output_padding=behind, dilation=dilation, groups=groups
        )

    after = apply(WidenConvolutions(), build, [normal(2, 4, 19)])
    assert names(after) == ["expand_dims", "nn.conv2d_transpose", "squeeze"]


def test_variable_weights_are_widened_too() -> None:
    after = apply(WidenConvolutions(), lambda b, x, w: op.nn.conv1d(x, w), [normal(2, 4, 19), normal(8, 4, 3)])
    assert names(after).count("nn.conv2d") == 1


def test_other_layouts_stay() -> None:
    unchanged(WidenConvolutions(), lambda b, x: op.nn.conv1d(x, weight(8, 4, 3), data_layout="NWC"), [normal(2, 19, 4)])


# --- WidenHalf ---


_DOTS = Machine(16, 32, 32 << 10, 1 << 20, 32 << 20, dot_bfloat16=True)


def _widen(machine: Machine = _DOTS) -> WidenHalf:
    return WidenHalf(CpuRounding(machine, threads=1))


def test_products_of_half_precision_are_those_of_float32() -> None:
    half = relax.const(normal(8, 4, 3, 3).astype("float16"))

    def build(b: relax.BlockBuilder, x: relax.Var, rows: relax.Var) -> relax.Expr:
        image = b.emit(op.nn.conv2d(x, half, out_dtype="float32"))
        product = b.emit(op.matmul(rows, rows, out_dtype="float32"))
        return relax.Tuple([image, product])

    arrays = [normal(2, 4, 9, 9).astype("float16"), normal(5, 5).astype("float16")]
    before = module(build, arrays)
    after = _widen()(before)
    assert names(after) == ["astype", "nn.conv2d", "astype", "astype", "matmul"]
    assert all(str(arg.ty.dtype) == "float32" for name, call in calls(after) if name != "astype" for arg in call.args)
    for made, wanted in zip(*evaluate_both(after, before, arrays), strict=True):
        np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("dtype", "made"), [("float16", "float16"), ("float32", "float32"), ("bfloat16", "float32"), ("int8", "int32")]
)
def test_products_that_are_rounded_or_no_halves_stay(dtype: str, made: str) -> None:
    """A result in float16 is another one, and the machine has a kernel for bfloat16."""
    rows = normal(16, 16).astype(dtype)
    unchanged(_widen(), lambda b, x: op.matmul(x, x, out_dtype=made), [rows])


_TILES, _NO_DOTS = replace(_DOTS, tiles=True), replace(_DOTS, dot_bfloat16=False)


@pytest.mark.parametrize(
    ("machine", "shape", "width", "stays"),
    [
        (_DOTS, (64, 512), 512, True), (_NO_DOTS, (64, 512), 512, False), (_NO_DOTS, (1, 512), 1024, False),
        (_TILES, (64, 512), 1024, True), (_TILES, (1, 512), 64, True),
    ],
)  # fmt: skip
def test_products_of_bfloat16_stay_where_a_cpu_is_no_slower(
    machine: Machine, shape: tuple[int, ...], width: int, stays: bool
) -> None:
    """Without an instruction for it they took plain loops."""
    matrix = constant(normal(shape[-1], width).astype(ml_dtypes.bfloat16))
    mod = apply(
        _widen(machine),
        lambda b, x: op.matmul(x, matrix, out_dtype="float32"),
        [normal(*shape).astype(ml_dtypes.bfloat16)],
    )
    assert names(mod) == (["matmul"] if stays else ["astype", "matmul"])


@pytest.mark.parametrize(("machine", "stays"), [(_DOTS, True), (_NO_DOTS, False), (_TILES, True)])
def test_convolutions_of_bfloat16_stay_where_a_cpu_is_no_slower(machine: Machine, stays: bool) -> None:
    taps = constant(normal(8, 4, 3, 3).astype(ml_dtypes.bfloat16))
    image = normal(2, 4, 9, 9).astype(ml_dtypes.bfloat16)
    mod = apply(_widen(machine), lambda b, x: op.nn.conv2d(x, taps, out_dtype="float32"), [image])
    assert names(mod) == (["nn.conv2d"] if stays else ["astype", "nn.conv2d"])


@pytest.mark.parametrize("columns", [33, None])
def test_products_of_bfloat16_without_a_kernel_are_those_of_float32(columns: int | None) -> None:
    """Rows that fill no vectors, and vectors."""
    arrays = [normal(*shape).astype(ml_dtypes.bfloat16) for shape in ((4, 32), (32, columns) if columns else (32,))]
    mod = apply(_widen(), lambda b, x, y: op.matmul(x, y, out_dtype="float32"), arrays)
    assert names(mod) == ["astype", "astype", "matmul"]


# --- SplitConv3d ---


@pytest.mark.parametrize(
    ("groups", "strides", "padding", "dilation"),
    [
        (1, 1, 0, 1), (1, 1, 1, 1), (1, (2, 1, 2), (1, 0, 2, 0, 1, 1), 1),
        (2, (1, 2, 1), (2, 1, 1, 1, 0, 0), (2, 1, 2)), (4, (3, 1, 1), (0, 1, 1, 2, 1, 1), 1),
    ],
)  # fmt: skip
def test_three_dimensional_convolutions_become_sums_of_images(
    groups: int, strides: object, padding: object, dilation: object
) -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return op.nn.conv3d(x, weight(8, 4 // groups, 3, 2, 3), strides, padding, dilation, groups)

    found = names(apply(SplitConv3d(), build, [normal(2, 4, 7, 6, 8)]))
    assert (found.count("nn.conv2d"), found.count("add")) == (3, 2)


@pytest.mark.parametrize("run", [False, True])
@pytest.mark.parametrize(("padding", "planes"), [(0, 7), ((1, 0, 1, 0, 1, 0), 5)])
def test_planes_that_no_two_windows_share_are_channels_of_one_image(run: bool, padding: object, planes: int) -> None:
    def build(b: relax.BlockBuilder, x: relax.Var, w: relax.Expr) -> relax.Expr:
        return op.nn.conv3d(x, w, (2, 3, 2), padding)

    data, taps = normal(2, 4, planes, 7, 8), weight(8, 4, 2, 3, 2)
    given = [data, taps.value.numpy()] if run else [data]
    found = names(apply(SplitConv3d(), build if run else lambda b, x: build(b, x, taps), given))
    assert (found.count("nn.conv2d"), found.count("add"), found.count("nn.conv3d")) == (1, 0, 0)


@pytest.mark.parametrize("run", [False, True])
@pytest.mark.parametrize(
    ("taps", "strides", "padding", "dilation", "groups"),
    [(1, 1, 0, 1, 1), (3, 1, (1, 0, 0, 1, 0, 0), 1, 1), (2, (2, 1, 1), (2, 0, 0, 1, 0, 0), (2, 1, 1), 2)],
)  # fmt: skip
def test_windows_of_one_pixel_see_one_image_of_the_depth(
    run: bool, taps: int, strides: object, padding: object, dilation: object, groups: int
) -> None:
    def build(b: relax.BlockBuilder, x: relax.Var, w: relax.Expr) -> relax.Expr:
        return op.nn.conv3d(x, w, strides, padding, dilation, groups)

    data, kernel = normal(2, 4, 7, 3, 5), weight(6, 4 // groups, taps, 1, 1)
    given = [data, kernel.value.numpy()] if run else [data]
    found = names(apply(SplitConv3d(), build if run else lambda b, x: build(b, x, kernel), given))
    assert (found.count("nn.conv2d"), found.count("permute_dims"), found.count("nn.conv3d")) == (1, 0, 0)


def test_windows_of_one_pixel_that_leave_pixels_out_are_sums_of_images() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return op.nn.conv3d(x, weight(3, 2, 2, 1, 1), (1, 2, 2))

    found = names(apply(SplitConv3d(), build, [normal(1, 2, 4, 5, 5)]))
    assert (found.count("nn.conv2d"), found.count("add")) == (2, 1)


def test_weights_of_the_run_of_three_dimensions_are_cut_into_planes_by_it() -> None:
    arrays = [normal(1, 2, 5, 5, 5), normal(3, 2, 3, 3, 3)]
    found = names(apply(SplitConv3d(), lambda b, x, w: op.nn.conv3d(x, w), arrays))
    assert (found.count("nn.conv2d"), found.count("nn.conv3d")) == (3, 0)


def test_half_weights_of_three_dimensions_stay() -> None:
    half = relax.const(np.ones((3, 2, 2, 2, 2), "float16"))
    unchanged(SplitConv3d(), lambda b, x: op.nn.conv3d(x, half), [normal(1, 2, 4, 4, 4).astype("float16")])


# --- SplitPool3d ---


@pytest.mark.parametrize(
    ("size", "strides", "padding", "dilation", "ceil"),
    [
        (2, 2, 0, 1, False), (3, 2, 1, 1, False), ((2, 3, 1), (1, 2, 1), (1, 1, 0, 0, 1, 0), 1, False),
        (2, (3, 1, 2), 0, (2, 1, 2), False), (3, 2, 1, 1, True),
    ],
)  # fmt: skip
def test_three_dimensional_maxima_are_those_of_images(
    size: object, strides: object, padding: object, dilation: object, ceil: bool
) -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return op.nn.max_pool3d(x, size, strides, padding, dilation, ceil)

    found = names(apply(SplitPool3d(), build, [normal(2, 3, 7, 8, 9)]))
    assert (found.count("nn.max_pool2d"), found.count("nn.max_pool3d")) == (1, 0)


@pytest.mark.parametrize(("size", "strides"), [(2, 2), ((3, 1, 2), (2, 1, 2))])
def test_three_dimensional_averages_without_padding_are_those_of_images(size: object, strides: object) -> None:
    found = names(apply(SplitPool3d(), lambda b, x: op.nn.avg_pool3d(x, size, strides), [normal(2, 3, 7, 8, 9)]))
    assert (found.count("nn.avg_pool2d"), found.count("nn.avg_pool3d")) == (1, 0)


def test_three_dimensional_averages_of_padded_images_stay() -> None:
    unchanged(SplitPool3d(), lambda b, x: op.nn.avg_pool3d(x, 3, 2, 1), [normal(1, 2, 4, 4, 4)])


# --- SplitConv3dTranspose ---


@pytest.mark.parametrize(
    ("depth", "stride", "padding", "more", "dilation", "count"),
    [
        (2, 2, 0, 0, 1, 1), (3, 2, 1, 1, 1, 3), (3, 2, 0, 0, 1, 3), (4, 2, 1, 0, 1, 4), (3, 1, 1, 0, 1, 3),
        (2, 1, 0, 0, 3, 2), (3, 3, 1, 2, 1, 2), (3, 3, 0, 0, 1, 1), (4, 3, 0, 0, 2, 4),
    ],
)  # fmt: skip
def test_three_dimensional_transposed_convolutions_become_images(
    depth: int, stride: int, padding: int, more: int, dilation: int, count: int
) -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        sizes = {"strides": (stride, 2, 1), "padding": (padding, 0, 1, padding, 1, 0)}
        more_sizes = {"output_padding": (more, 1, 0), "dilation": (dilation, 1, 2)}
        return op.nn.conv3d_transpose(x, weight(3, 5, depth, 2, 3), **sizes, **more_sizes)

    found = names(apply(SplitConv3dTranspose(), build, [normal(2, 3, 4, 5, 6)]))
    assert (found.count("nn.conv2d_transpose"), found.count("nn.conv3d_transpose")) == (count, 0)


def test_transposed_convolutions_that_leave_planes_out_or_have_groups_stay() -> None:
    def build(strides: int, groups: int) -> Callable[..., relax.Expr]:
        return lambda b, x: op.nn.conv3d_transpose(x, weight(4, 2, 1, 2, 2), strides, groups=groups)

    unchanged(SplitConv3dTranspose(), build(2, 1), [normal(1, 4, 3, 3, 3)])
    unchanged(SplitConv3dTranspose(), build(1, 2), [normal(1, 4, 3, 3, 3)])


# --- lift_weights ---


def test_constants_become_parameters_and_equal_ones_one() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return op.multiply(op.add(op.multiply(x, weight(4)), weight(4)), weight(4, seed=1))

    x = normal(3, 4)
    before = module(build, [x])
    same = module(build, [x])
    lifted, values = lift_weights(before)
    assert tvm_ffi.structural_equal(before, same)
    assert [value.numpy().tolist() for value in values] == [normal(4).tolist(), normal(4, seed=1).tolist()]
    assert len(lifted["main"].params) == 3
    np.testing.assert_array_equal(evaluate(lifted, [x, *(v.numpy() for v in values)])[0], evaluate(before, [x])[0])
    again, none = lift_weights(lifted)
    assert not none
    assert tvm_ffi.structural_equal(again, lifted)


def test_constants_of_equal_bytes_but_other_types_stay_apart() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        zeros = relax.const(np.zeros(4, "int32"))
        return op.add(op.add(x, relax.const(np.zeros(4, "float32"))), op.astype(zeros, "float32"))

    _, values = lift_weights(module(build, [normal(3, 4)]))
    assert sorted(str(value.dtype) for value in values) == ["float32", "int32"]


def test_a_module_without_constants_is_left_alone() -> None:
    before = module(lambda b, x: op.exp(x), [normal(3)])
    lifted, values = lift_weights(before)
    assert not values
    assert tvm_ffi.structural_equal(lifted, before)
