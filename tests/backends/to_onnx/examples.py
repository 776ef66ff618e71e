"""Calls of every operator that is written as ONNX, several where it has several forms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.relax import op

from fusion.constants import constant

Build = Callable[["Operands"], relax.Expr]


def _weight(*shape: int, low: float = -1.0) -> relax.Expr:
    values = np.random.default_rng(sum(shape)).uniform(low, 1.0, shape)
    return relax.const(values.astype(np.float32))


@dataclass(frozen=True)
class Operands:
    """Inputs of the examples.

    Attributes:
        values: What each is, by name.
    """

    values: Mapping[str, np.ndarray]

    @cached_property
    def variables(self) -> dict[str, relax.Var]:
        return {
            name: relax.Var(name, relax.TensorType(value.shape, value.dtype.name))
            for name, value in self.values.items()
        }

    def __getattr__(self, name: str) -> relax.Var:
        return self.variables[name]


@dataclass(frozen=True)
class FamilyModule:
    """All examples of a family as the results of one function.

    Attributes:
        mod: Its function is `main`.
        operators: Of each result.
        values: Of each parameter, by its name.
    """

    mod: tvm.IRModule
    operators: list[str]
    values: Mapping[str, np.ndarray]

    @staticmethod
    def of(family: str) -> FamilyModule:
        """Return the examples of `family` on random operands."""
        examples = [(name, build) for name, builds in FAMILIES[family].items() for build in builds]
        operands, builder = draw_operands(3), relax.BlockBuilder()
        with builder.function("main", list(operands.variables.values())):
            with builder.dataflow():
                made = [builder.emit_output(builder.normalize(build(operands))) for _, build in examples]
            builder.emit_func_output(relax.Tuple(made))
        return FamilyModule(builder.get(), [name for name, _ in examples], operands.values)


def draw_operands(seed: int) -> Operands:
    """Return random operands: `x` and `y` of one shape, `u` in (0, 1), integers `n`, `m` and `p`, places `i`, rows `r`,
    whether `b`, half precision `h`."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    return Operands({
        "x": normal(2, 8, 6, 5),
        "y": normal(2, 8, 6, 5),
        "u": rng.uniform(0.05, 0.95, (3, 4)).astype(np.float32),
        "n": rng.integers(-9, 9, (3, 4)),
        "m": rng.integers(1, 5, (3, 4)) * rng.choice([-1, 1], (3, 4)),
        "p": rng.integers(0, 7, (3, 4)).astype(np.uint32),
        "i": rng.integers(0, 5, (2, 3)),
        "r": normal(7),
        "b": rng.random((3, 4)) < 0.5,
        "h": normal(3, 4).astype(np.float16),
        "line": normal(2, 4, 9),
        "cube": normal(1, 2, 5, 4, 6),
        "last": normal(2, 6, 5, 8),
        "grid": rng.uniform(-1.2, 1.2, (2, 2, 3, 4)).astype(np.float32),
        "q": rng.integers(-100, 100, (3, 4)).astype(np.int8),
    })  # fmt: skip


_UNARY = (
    "abs acos asin asinh atan atanh ceil cos cosh erf exp floor isfinite isinf isnan log negative rsqrt sigmoid sign "
    "sin sinh sqrt square tan tanh"
)
_NN = "relu selu silu gelu gelu_tanh"
_BINARY = "add subtract multiply divide maximum minimum equal not_equal greater greater_equal less less_equal"

ELEMENTWISE: Mapping[str, tuple[Build, ...]] = {
    **{name: (lambda v, name=name: getattr(op, name)(v.u),) for name in _UNARY.split()},
    **{f"nn.{name}": (lambda v, name=name: getattr(op.nn, name)(v.x),) for name in _NN.split()},
    **{name: (lambda v, name=name: getattr(op, name)(v.x, v.y),) for name in _BINARY.split()},
    "acosh": (lambda v: op.acosh(op.add(v.u, relax.const(1.0))),),
    "astype": (
        lambda v: op.astype(v.x, "int32"), lambda v: op.astype(v.n, "float16"), lambda v: op.astype(v.q, "bool")
    ),
    "bitwise_and": (lambda v: op.bitwise_and(v.n, v.m), lambda v: op.bitwise_and(v.b, op.greater(v.n, v.m))),
    "bitwise_not": (lambda v: op.bitwise_not(v.n),),
    "bitwise_or": (lambda v: op.bitwise_or(v.n, v.m), lambda v: op.bitwise_or(v.b, op.greater(v.n, v.m))),
    "bitwise_xor": (lambda v: op.bitwise_xor(v.n, v.m), lambda v: op.bitwise_xor(v.b, op.greater(v.n, v.m))),
    "clip": (lambda v: op.clip(v.x, -0.5, 0.5), lambda v: op.clip(v.n, -3, 4)),
    "floor_divide": (lambda v: op.floor_divide(v.n, v.m), lambda v: op.floor_divide(v.x, v.y)),
    "floor_mod": (lambda v: op.floor_mod(v.n, v.m), lambda v: op.floor_mod(v.x, v.y)),
    "left_shift": (lambda v: op.left_shift(v.p, relax.const(np.uint32(2))),),
    "logical_and": (lambda v: op.logical_and(v.b, op.greater(v.n, v.m)),),
    "logical_not": (lambda v: op.logical_not(v.b),),
    "logical_or": (lambda v: op.logical_or(v.b, op.greater(v.n, v.m)),),
    "logical_xor": (lambda v: op.logical_xor(v.b, op.greater(v.n, v.m)),),
    "mod": (lambda v: op.mod(v.n, v.m),),
    "nn.dropout": (lambda v: relax.TupleGetItem(op.nn.dropout(v.x), 0),),
    "nn.leakyrelu": (lambda v: op.nn.leakyrelu(v.x, 0.2),),
    "nn.prelu": (lambda v: op.nn.prelu(v.x, _weight(8), 1), lambda v: op.nn.prelu(v.last, _weight(8), 3)),
    "nn.softplus": (
        lambda v: op.nn.softplus(v.x), lambda v: op.nn.softplus(v.x, 2.0), lambda v: op.nn.softplus(v.x, 2.0, 0.5)
    ),
    "power": (lambda v: op.power(v.u, v.u),),
    "right_shift": (lambda v: op.right_shift(v.p, relax.const(np.uint32(1))),),
    "round": (lambda v: op.round(op.multiply(v.x, relax.const(3.0))),),
    "trunc": (lambda v: op.trunc(op.multiply(v.x, relax.const(3.0))), lambda v: op.trunc(v.n)),
    "where": (lambda v: op.where(v.b, v.u, relax.const(2.0)),),
}
MOVEMENT: Mapping[str, tuple[Build, ...]] = {
    "broadcast_to": (lambda v: op.broadcast_to(v.u, (2, 3, 4)),),
    "concat": (lambda v: op.concat([v.x, v.y, v.x], 1),),
    "expand_dims": (lambda v: op.expand_dims(v.u, [0, -1]),),
    "flatten": (lambda v: op.flatten(v.x),),
    "flip": (lambda v: op.flip(v.x, 2), lambda v: op.flip(v.x, -1)),
    "meshgrid": (lambda v: relax.TupleGetItem(op.meshgrid([v.r, relax.const(np.ones(3, np.float32))]), 0),),
    "nn.batch_flatten": (lambda v: op.nn.batch_flatten(v.x),),
    "nn.pad": (
        lambda v: op.nn.pad(v.x, (0, 0, 1, 0, 0, 2, 3, 1), pad_value=0.5),
        lambda v: op.nn.pad(v.x, (0, 0, 0, 0, 1, 2, 2, 1), "reflect"),
    ),
    "permute_dims": (lambda v: op.permute_dims(v.x, [0, -1, 1, 2]), lambda v: op.permute_dims(v.x)),
    "repeat": (lambda v: op.repeat(v.u, 2, 1), lambda v: op.repeat(v.u, 3)),
    "reshape": (lambda v: op.reshape(v.x, (4, -1)),),
    "slice_scatter": (lambda v: op.slice_scatter(v.x, op.strided_slice(v.y, [2], [0], [3], [1]), 1, 6, 2, 2),),
    "split": (
        lambda v: relax.TupleGetItem(op.split(v.x, 4, 1), 2), lambda v: relax.TupleGetItem(op.split(v.x, [1, 3], -1), 1)
    ),
    "squeeze": (
        lambda v: op.squeeze(op.strided_slice(v.x, [1], [0], [1], [1]), [1]),
        lambda v: op.squeeze(op.reshape(v.u, (1, 12, 1))),
    ),
    "stack": (lambda v: op.stack([v.x, v.y], 1), lambda v: op.stack([v.x, v.y], -1)),
    "strided_slice": (
        lambda v: op.strided_slice(v.x, [1, -1], [1, 0], [7, 100], [2, 3]),
        lambda v: op.strided_slice(v.x, [2], [-1], [-7], [-2]),
    ),
    "tile": (lambda v: op.tile(v.u, [2, 1, 3]), lambda v: op.tile(v.x, [2])),
    "tril": (lambda v: op.tril(v.u, 1),),
    "triu": (lambda v: op.triu(v.u, -1),),
}
_REDUCED = ("max", "mean", "min", "prod", "sum", "variance", "std")
REDUCTIONS: Mapping[str, tuple[Build, ...]] = {
    **{
        name: (
            lambda v, name=name: getattr(op, name)(v.x, [1, -1]),
            lambda v, name=name: getattr(op, name)(v.u, keepdims=True),
            lambda v, name=name: getattr(op, name)(v.u),
        )
        for name in _REDUCED
    },
    "argmax": (lambda v: op.argmax(v.x, 1), lambda v: op.argmax(v.x, -1, True), lambda v: op.argmax(v.x)),
    "argmin": (lambda v: op.argmin(v.x, 1), lambda v: op.argmin(v.x, keepdims=True)),
    "argsort": (lambda v: op.argsort(v.x, 1), lambda v: op.argsort(v.x, -1, True, "int64")),
    "cumsum": (lambda v: op.cumsum(v.x, 1), lambda v: op.cumsum(v.u), lambda v: op.cumsum(v.u, 0, exclusive=True)),
    "nn.log_softmax": (lambda v: op.nn.log_softmax(v.x, 1),),
    "nn.softmax": (lambda v: op.nn.softmax(v.x), lambda v: op.nn.softmax(v.x, 1)),
    "sort": (lambda v: op.sort(v.x, 2), lambda v: op.sort(v.x, -1, True)),
    "topk": (
        lambda v: relax.TupleGetItem(op.topk(v.x, 3, 1), 1),
        lambda v: op.topk(v.x, 2, ret_type="values", largest=False),
        lambda v: op.topk(v.x, 2, ret_type="indices", dtype="int64"),
    ),
}
PRODUCTS: Mapping[str, tuple[Build, ...]] = {
    "einsum": (lambda v: op.einsum([v.x, v.y], "nchw,nkhw->nck"),),
    "matmul": (
        lambda v: op.matmul(v.x, _weight(5, 3)), lambda v: op.matmul(v.h, op.permute_dims(v.h), "float32"),
        lambda v: op.matmul(v.q, op.permute_dims(v.q), "int32"),
    ),
    "nn.conv1d": (lambda v: op.nn.conv1d(v.line, _weight(3, 4, 3), 2, 1),),
    "nn.conv1d_transpose": (lambda v: op.nn.conv1d_transpose(v.line, _weight(4, 3, 3), 2, 1, 1),),
    "nn.conv2d": (
        lambda v: op.nn.conv2d(v.x, _weight(4, 8, 3, 2), (2, 1), (1, 0, 2, 1)),
        lambda v: op.nn.conv2d(v.x, _weight(8, 2, 3, 3), dilation=2, padding=2, groups=4),
        lambda v: op.nn.conv2d(v.last, _weight(3, 3, 8, 4), data_layout="NHWC", kernel_layout="HWIO"),
        lambda v: op.nn.conv2d(op.reshape(v.q, (1, 3, 2, 2)), op.reshape(v.q, (4, 3, 1, 1)), out_dtype="int32"),
    ),
    "nn.conv2d_transpose": (
        lambda v: op.nn.conv2d_transpose(v.x, _weight(8, 3, 3, 3), 2, (1, 0, 0, 1), (1, 1)),
        lambda v: op.nn.conv2d_transpose(v.x, _weight(8, 2, 2, 3), groups=2),
    ),
    "nn.conv3d": (lambda v: op.nn.conv3d(v.cube, _weight(3, 2, 2, 3, 3), padding=1),),
    "nn.conv3d_transpose": (lambda v: op.nn.conv3d_transpose(v.cube, _weight(2, 3, 2, 3, 3), 2),),
    "outer": (lambda v: op.outer(v.r, v.r),),
}
_CHANNELS = tuple(_weight(8, low=0.5) for _ in range(4))
NORMALIZATION: Mapping[str, tuple[Build, ...]] = {
    "nn.batch_norm": (
        lambda v: relax.TupleGetItem(op.nn.batch_norm(v.x, *_CHANNELS, axis=1, training=False), 0),
        lambda v: relax.TupleGetItem(op.nn.batch_norm(v.last, *_CHANNELS, axis=3, training=False), 0),
    ),
    "nn.group_norm": (
        lambda v: op.nn.group_norm(v.x, *_CHANNELS[:2], 4, 1, [2, 3]),
        lambda v: op.nn.group_norm(v.last, *_CHANNELS[:2], 2, 3, [1, 2]),
    ),
    "nn.instance_norm": (
        lambda v: op.nn.instance_norm(v.x, *_CHANNELS[:2], 1, [2, 3]),
        lambda v: op.nn.instance_norm(v.last, *_CHANNELS[:2], 3, [1, 2]),
    ),
    "nn.layer_norm": (
        lambda v: op.nn.layer_norm(v.last, *_CHANNELS[:2], [-1]),
        lambda v: op.nn.layer_norm(v.x, *_CHANNELS[:2], [1]),
    ),
    "nn.rms_norm": (lambda v: op.nn.rms_norm(v.last, _CHANNELS[0], [-1]),),
}
WINDOWS: Mapping[str, tuple[Build, ...]] = {
    **{
        f"nn.{kind}_pool{rank}d": (
            lambda v, name=f"{kind}_pool{rank}d", x=x, n=rank: getattr(op.nn, name)(getattr(v, x), [2] * n, [2] * n),
        )
        for kind in ("avg", "max")
        for rank, x in ((1, "line"), (3, "cube"))
    },
    "image.grid_sample": (
        lambda v: op.image.grid_sample(v.x, v.grid),
        lambda v: op.image.grid_sample(v.x, v.grid, "nearest", padding_mode="border", align_corners=True),
    ),
    "image.resize2d": (
        lambda v: op.image.resize2d(v.x, (9, 11)),
        lambda v: op.image.resize2d(v.x, (12, 10), method="nearest_neighbor", rounding_method="floor",
                                    coordinate_transformation_mode="asymmetric"),
        lambda v: op.image.resize2d(v.x, (3, 7), method="nearest_neighbor"),
        lambda v: op.image.resize2d(v.x, (9, 4), method="nearest_neighbor", rounding_method=""),
        lambda v: op.image.resize2d(v.last, (12, 10), layout="NHWC", coordinate_transformation_mode="align_corners"),
    ),
    "image.resize3d": (lambda v: op.image.resize3d(v.cube, (10, 8, 12)),),
    "nn.adaptive_avg_pool1d": (lambda v: op.nn.adaptive_avg_pool1d(v.line, 3),),
    "nn.adaptive_avg_pool2d": (
        lambda v: op.nn.adaptive_avg_pool2d(v.x, (1, 1)), lambda v: op.nn.adaptive_avg_pool2d(v.x, (3, 5))
    ),
    "nn.adaptive_avg_pool3d": (lambda v: op.nn.adaptive_avg_pool3d(v.cube, (5, 2, 3)),),
    "nn.avg_pool2d": (
        lambda v: op.nn.avg_pool2d(v.x, (3, 3), (2, 2), (1, 1, 1, 1)),
        lambda v: op.nn.avg_pool2d(v.x, (3, 3), (2, 2), (1, 1, 1, 1), count_include_pad=True),
    ),
    "nn.max_pool2d": (
        lambda v: op.nn.max_pool2d(v.x, (3, 2), (2, 2), (1, 0, 1, 1)),
        lambda v: op.nn.max_pool2d(v.x, (3, 3), (2, 2), ceil_mode=True),
        lambda v: op.nn.max_pool2d(v.last, (2, 2), layout="NHWC"),
    ),
}  # fmt: skip
_PLACES = np.array([3, 5] * 30).reshape(2, 1, 6, 5)
INDEXING: Mapping[str, tuple[Build, ...]] = {
    "gather_elements": (lambda v: op.gather_elements(v.x, constant(_PLACES), 1),),
    "gather_nd": (lambda v: op.gather_nd(v.x, constant(np.array([[0, 3], [1, 7]]))),),
    "one_hot": (lambda v: op.one_hot(v.i, tirx.const(2.0, "float32"), tirx.const(0.5, "float32"), 6, -1),),
    "reverse_sequence": (lambda v: op.reverse_sequence(v.x, constant(np.array([2, 5])), 1, 0),),
    "scatter_elements": (
        lambda v: op.scatter_elements(v.x, constant(_PLACES), op.strided_slice(v.y, [1], [0], [1], [1]), 1),
        lambda v: op.scatter_elements(v.x, constant(_PLACES), op.strided_slice(v.y, [1], [0], [1], [1]), 1, "add"),
    ),
    "scatter_nd": (
        lambda v: op.scatter_nd(v.r, constant(np.array([[1], [4]])), op.strided_slice(v.r, [0], [0], [2], [1])),
    ),
    "take": (lambda v: op.take(v.x, v.i, 1), lambda v: op.take(v.r, v.i), lambda v: op.take(v.x, v.i, 2, "clip")),
}
FILLING: Mapping[str, tuple[Build, ...]] = {
    "arange": (lambda v: op.add(v.r, op.arange(0, 7, 1, "float32")),),
    "dequantize": (lambda v: op.dequantize(v.q, relax.const(0.5), relax.const(np.int8(3)), -1),),
    "eye": (lambda v: op.add(v.u, op.eye(3, 4, 1, "float32")),),
    "full": (lambda v: op.add(v.u, op.full((3, 4), relax.const(2.0))),),
    "full_like": (lambda v: op.full_like(v.u, relax.const(3.0)),),
    "ones": (lambda v: op.add(v.u, op.ones((3, 4), "float32")),),
    "ones_like": (lambda v: op.ones_like(v.u),),
    "quantize": (lambda v: op.quantize(v.u, relax.const(0.01), relax.const(np.int8(-4)), -1, "int8"),),
    "zeros": (lambda v: op.add(v.u, op.zeros((3, 4), "float32")),),
    "zeros_like": (lambda v: op.zeros_like(v.u),),
}
FAMILIES: Mapping[str, Mapping[str, tuple[Build, ...]]] = {
    "elementwise": ELEMENTWISE, "movement": MOVEMENT, "reductions": REDUCTIONS, "products": PRODUCTS,
    "normalization": NORMALIZATION, "windows": WINDOWS, "indexing": INDEXING, "filling": FILLING,
}  # fmt: skip
