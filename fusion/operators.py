"""Facts of Relax operators that passes ask for: a row for each operator that TVM has, which a test checks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum


class OperatorKind(Enum):
    """What an operator does with the axes of its operands, and so in which layouts it can run.

    Attributes:
        ELEMENTWISE: An element of the result depends on those at its place, with broadcasting. Any layout.
        RESHAPE: The same elements under another shape. No data moves if the axes factor.
        TRANSPOSE: A permutation of axes. No data moves; the axes are renamed.
        MOVE: Elements are copied to other places, along axes that can be renamed.
        CONTRACTION: Sums of products: matmuls and convolutions.
        POOL: A window over the image of each channel.
        RESIZE: Images get another size, each channel by itself.
        ALONG_AXIS: Each row along one axis by itself, such as softmax.
        ROW_NORM: Normalisation of rows along the last axes.
        CHANNEL_NORM: Normalisation of channels, or of groups of them.
        REDUCTION: Axes vanish, or keep one element.
        FIXED: The definition of the operator fixes the order of axes.
        NEW: It reads no tensor.
        CALL: A function call, or an operator that is not on tensors.
    """

    ELEMENTWISE = "elementwise"
    RESHAPE = "reshape"
    TRANSPOSE = "transpose"
    MOVE = "move"
    CONTRACTION = "contraction"
    POOL = "pool"
    RESIZE = "resize"
    ALONG_AXIS = "along an axis"
    ROW_NORM = "norm of rows"
    CHANNEL_NORM = "norm of channels"
    REDUCTION = "reduction"
    FIXED = "fixed"
    NEW = "new"
    CALL = "call"


@dataclass(frozen=True)
class Operator:
    """The facts of one operator.

    Attributes:
        kind: What it does with axes.
        flops: Operations per element of the result, weighted by the number of instructions; for a reduction, per
            element that it reads; for a contraction, without the sums of products.
    """

    kind: OperatorKind
    flops: int = 1


def _rows(kind: OperatorKind, names: str, flops: int = 1) -> Iterator[tuple[str, Operator]]:
    return ((name, Operator(kind, flops)) for name in names.split())


OPERATORS: dict[str, Operator] = dict(
    (
        *_rows(OperatorKind.ELEMENTWISE, """
            abs acos acosh add asin asinh astype atan atan2 atanh bitwise_and bitwise_not bitwise_or bitwise_xor ceil
            clip cos cosh equal floor floor_divide floor_mod greater greater_equal isfinite isinf isnan left_shift less
            less_equal log_add_exp logical_and logical_not logical_or logical_xor maximum minimum mod multiply negative
            nn.leakyrelu nn.relu nn.selu nn.softplus not_equal right_shift round sign sin sinh square subtract tan trunc
            where
        """),
        *_rows(OperatorKind.ELEMENTWISE, "divide rsqrt sqrt", 4),
        *_rows(OperatorKind.ELEMENTWISE, "erf exp log sigmoid tanh", 10),
        *_rows(OperatorKind.ELEMENTWISE, "nn.silu", 11),
        *_rows(OperatorKind.ELEMENTWISE, "nn.gelu", 14),
        *_rows(OperatorKind.ELEMENTWISE, "nn.gelu_tanh", 16),
        *_rows(OperatorKind.ELEMENTWISE, "power", 20),
        *_rows(OperatorKind.RESHAPE, "expand_dims flatten nn.batch_flatten reshape squeeze"),
        *_rows(OperatorKind.TRANSPOSE, "permute_dims", 0),
        *_rows(OperatorKind.MOVE, "concat nn.pad split strided_slice take"),
        *_rows(OperatorKind.CONTRACTION, """
            matmul nn.conv1d nn.conv1d_transpose nn.conv2d nn.conv2d_transpose nn.conv3d nn.conv3d_transpose
        """),
        *_rows(OperatorKind.POOL, """
            nn.adaptive_avg_pool1d nn.adaptive_avg_pool2d nn.adaptive_avg_pool3d nn.avg_pool1d nn.avg_pool2d
            nn.avg_pool3d nn.max_pool1d nn.max_pool2d nn.max_pool3d
        """),
        *_rows(OperatorKind.RESIZE, "image.resize2d"),
        *_rows(OperatorKind.ALONG_AXIS, "cumprod cumsum"),
        *_rows(OperatorKind.ALONG_AXIS, "nn.log_softmax nn.softmax", 14),
        *_rows(OperatorKind.ROW_NORM, "nn.layer_norm", 5),
        *_rows(OperatorKind.ROW_NORM, "nn.rms_norm", 3),
        *_rows(OperatorKind.CHANNEL_NORM, "nn.group_norm nn.instance_norm", 5),
        *_rows(OperatorKind.REDUCTION, "argmax argmin max mean min prod std sum variance"),
        *_rows(OperatorKind.FIXED, """
            argsort bucketize collapse_sum_like collapse_sum_to dequantize dynamic_strided_slice einsum
            ewise_fma flip gather_elements gather_nd image.affine_grid image.grid_sample image.resize3d index_put
            index_tensor layout_transform median meshgrid multinomial_from_uniform nn.attention nn.attention_bias
            nn.attention_var_len nn.batch_norm nn.cross_entropy_with_logits nn.dropout nn.nll_loss nn.pixel_shuffle
            nn.prelu nonzero one_hot outer quantize repeat reverse_sequence scatter_elements scatter_nd slice_scatter
            sort stack tile topk tril triu unique vision.all_class_non_max_suppression vision.get_valid_counts
            vision.multibox_transform_loc vision.non_max_suppression vision.roi_align vision.roi_pool
        """),
        *_rows(OperatorKind.FIXED, "broadcast_to", 0),
        *_rows(OperatorKind.NEW, "arange eye eye_like full full_like hamming_window ones ones_like zeros zeros_like"),
        *_rows(OperatorKind.CALL, """
            assert_op call_builtin_with_ctx call_dps_packed call_inplace_packed call_pure_packed call_py_func call_tir
            call_tir_inplace call_tir_with_grad hint_on_device invoke_closure invoke_pure_closure make_closure
            null_value print shape_of shape_to_tensor size tensor_to_shape to_vdevice wrap_param
        """),
    )
)  # fmt: skip
"""By name, without "relax."."""


def of_kind(*kinds: OperatorKind) -> frozenset[str]:
    """Return the names of all operators of these kinds."""
    return frozenset(name for name, operator in OPERATORS.items() if operator.kind in kinds)
