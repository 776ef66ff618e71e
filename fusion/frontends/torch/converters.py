"""Converters from ATen to Relax for operators that TVM's importer lacks, or computes in another dtype than torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from torch import fx
from tvm import relax

from fusion.declined import Declined
from fusion.frontends.torch import arguments, linear_algebra, pool_indices, quantization, recurrent
from fusion.frontends.torch.operands import HALVES, Converter, cast, operands, spread


def _reduction(op: Callable[..., relax.Expr]) -> Converter:
    def convert(node: fx.Node, importer: Any) -> Any:
        given = operands(node, importer)
        dims = given["dim"]
        axes = list(dims) if isinstance(dims, (list, tuple)) else [dims]
        return importer.block_builder.emit(op(given["self"], axis=axes or None, keepdims=given["keepdim"]))

    return convert


def _matmul(node: fx.Node, importer: Any) -> Any:
    """A product in the dtype of its operands; those of 16 bits are summed in float32."""
    left, right = importer.retrieve_args(node)
    dtype = str(left.ty.dtype)
    emit = importer.block_builder.emit
    if dtype not in HALVES:
        return emit(relax.op.matmul(left, right))
    return emit(relax.op.astype(emit(relax.op.matmul(left, right, out_dtype="float32")), dtype))


_METHODS = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")


def _grid_sampler(node: fx.Node, importer: Any) -> Any:
    """Relax has the coordinates of a grid before the places, torch behind them."""
    given = operands(node, importer)
    emit = importer.block_builder.emit
    places = range(1, int(given["grid"].ty.ndim) - 1)
    return emit(
        relax.op.image.grid_sample(
            given["input"],
            emit(relax.op.permute_dims(given["grid"], [0, len(places) + 1, *places])),
            method=_METHODS[given["interpolation_mode"]],
            layout="NCHW" if len(places) == len("HW") else "NCDHW",
            padding_mode=_PADDINGS[given["padding_mode"]],
            align_corners=given["align_corners"],
        )
    )


def _binary(op: Callable[[relax.Expr, relax.Expr], relax.Expr]) -> Converter:
    def convert(node: fx.Node, importer: Any) -> Any:
        left, right = importer.retrieve_args(node)
        if not isinstance(right, relax.Expr):
            right = relax.const(right, left.ty.dtype)
        return importer.block_builder.emit(op(left, right))

    return convert


def _product_of_bytes(node: fx.Node, importer: Any) -> Any:
    """Products of int8, summed in int32."""
    emit = importer.block_builder.emit
    left, right = (emit(relax.op.astype(operand, "int32")) for operand in importer.retrieve_args(node))
    return emit(relax.op.matmul(left, right))


def _scatter_add(node: fx.Node, importer: Any) -> Any:
    given = operands(node, importer)
    return importer.block_builder.emit(
        relax.op.scatter_elements(given["self"], given["index"], given["src"], axis=given["dim"], reduction="add")
    )


_REDUCTIONS = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}


def _scatter_reduce(node: fx.Node, importer: Any) -> Any:
    given = operands(node, importer)
    return importer.block_builder.emit(
        relax.op.scatter_elements(
            given["self"], given["index"], given["src"], axis=given["dim"], reduction=_REDUCTIONS[given["reduce"]]
        )
    )


def _clamp(node: fx.Node, importer: Any) -> Any:
    """Bounds of integers are integers; the infinities that TVM's converter takes for none are not."""
    given = operands(node, importer)
    value = given["self"]
    if "int" not in str(value.ty.dtype):
        return importer._clamp(node)
    for op, bound in ((relax.op.maximum, given["min"]), (relax.op.minimum, given["max"])):
        if bound is not None:
            value = importer.block_builder.emit(op(value, relax.const(int(bound), value.ty.dtype)))
    return value


_CONVOLUTIONS = {1: relax.op.nn.conv1d, 2: relax.op.nn.conv2d, 3: relax.op.nn.conv3d}
_TRANSPOSED = {1: relax.op.nn.conv1d_transpose, 2: relax.op.nn.conv2d_transpose, 3: relax.op.nn.conv3d_transpose}


def _convolution(node: fx.Node, importer: Any) -> Any:
    """TVM's own makes float32 of every dtype, and lacks transposed ones over three axes."""
    given = operands(node, importer)
    dtype = str(given["input"].ty.dtype)
    axes = given["input"].ty.ndim - 2
    if dtype == "float32" and not (given["transposed"] and axes == 3):
        return importer._convolution(node)
    emit = importer.block_builder.emit
    sums = "float32" if dtype in HALVES else dtype
    options: dict[str, Any] = {"groups": given["groups"], "out_dtype": sums}
    for name, operand in (("strides", "stride"), ("padding", "padding"), ("dilation", "dilation")):
        options[name] = spread(given[operand], axes)
    if given["transposed"]:
        options["output_padding"] = spread(given["output_padding"], axes)
        found = emit(_TRANSPOSED[axes](given["input"], given["weight"], **options))
    else:
        found = emit(_CONVOLUTIONS[axes](given["input"], given["weight"], **options))
    if given["bias"] is not None:
        bias = emit(relax.op.reshape(given["bias"], [1, -1, *([1] * axes)]))
        found = emit(relax.op.add(found, emit(relax.op.astype(bias, sums)) if sums != dtype else bias))
    return emit(relax.op.astype(found, dtype)) if sums != dtype else found


def _batch_norm(node: fx.Node, importer: Any) -> Any:
    """A normalisation by known statistics; in 16 bits computed in float32, as torch does."""
    given = operands(node, importer)
    data, channels, emit = given["input"], int(given["input"].ty.shape[1]), importer.block_builder.emit
    dtype = str(data.ty.dtype)
    wide = "float32" if dtype in HALVES else dtype
    kinds = (("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0))
    constants = [
        relax.const(np.full(channels, value, wide)) if given[name] is None else cast(emit, given[name], wide)
        for name, value in kinds
    ]
    made = emit(relax.op.nn.batch_norm(cast(emit, data, wide), *constants, 1, given["eps"], training=False))
    return cast(emit, emit(made[0]), dtype)


def _expand(node: fx.Node, importer: Any) -> Any:
    """Nothing where the shape is the same, as in each product of torch's attention: a broadcast there would keep its
    kernel from having symbols for rows. Sizes are compared by their texts: torch would add a guard to the program for a
    `==` of two symbols, or raise where a value decides it."""
    value = importer.retrieve_args(node)[0]
    before, after = ([str(size) for size in each.meta["val"].shape] for each in (node.args[0], node))
    return value if before == after else importer._expand(node)


def _embedding(node: fx.Node, importer: Any) -> Any:
    """TVM's own takes indices for int32, of which those beyond it are others, and refuses to take none of them."""
    given = operands(node, importer)
    return importer.block_builder.emit(relax.op.take(given["weight"], given["indices"], axis=0))


def _arange(node: fx.Node, importer: Any) -> Any:
    """TVM's own takes one that counts down for a longer one."""
    given = operands(node, importer)
    start, step, dtype = given.get("start", 0), given.get("step", 1), node.meta["val"].dtype
    if step > 0:
        return importer._arange(node)
    emit, wide = importer.block_builder.emit, "float64" if dtype.is_floating_point else "int64"
    places = emit(relax.op.arange(0, node.meta["val"].shape[0], 1, "int64"))
    steps = emit(relax.op.multiply(emit(relax.op.astype(places, wide)), relax.const(step, wide)))
    return emit(relax.op.astype(emit(relax.op.add(steps, relax.const(start, wide))), str(dtype).partition(".")[2]))


def _triangle(node: fx.Node, importer: Any) -> Any:
    """The places of the elements of a triangle, which torch knows when it traces."""
    indices = node.target(*node.args, **{**node.kwargs, "device": "cpu"})
    return relax.const(tvm.runtime.tensor(indices.numpy()))


def _known_matrix(node: fx.Node, importer: Any) -> Any:
    """The matrix of a transform whose length torch knows when it traces."""
    return relax.const(tvm.runtime.tensor(node.target(*node.args, **node.kwargs).numpy()))


def _of_unknown_size(node: fx.Node, importer: Any) -> Any:
    """What masks and `nonzero` take; an index without a mask is decomposed."""
    raise Declined("how many elements it takes depends on the data")


CONVERTERS: dict[str, Converter] = {
    **arguments.CONVERTERS,
    **linear_algebra.CONVERTERS,
    **pool_indices.CONVERTERS,
    **quantization.CONVERTERS,
    **recurrent.CONVERTERS,
    "index.Tensor": _of_unknown_size,
    "nonzero.default": _of_unknown_size,
    "fourier_matrix.default": _known_matrix,
    "arange.default": _arange,
    "arange.start": _arange,
    "arange.start_step": _arange,
    "tril_indices.default": _triangle,
    "triu_indices.default": _triangle,
    "amax.default": _reduction(relax.op.max),
    "amin.default": _reduction(relax.op.min),
    "prod.dim_int": _reduction(relax.op.prod),
    "mm.default": _matmul,
    "bmm.default": _matmul,
    "matmul.default": _matmul,
    "_int_mm.default": _product_of_bytes,
    "grid_sampler_2d.default": _grid_sampler,
    "grid_sampler_3d.default": _grid_sampler,
    "bitwise_left_shift.Tensor": _binary(relax.op.left_shift),
    "bitwise_left_shift.Tensor_Scalar": _binary(relax.op.left_shift),
    "bitwise_right_shift.Tensor": _binary(relax.op.right_shift),
    "bitwise_right_shift.Tensor_Scalar": _binary(relax.op.right_shift),
    "__lshift__.Tensor": _binary(relax.op.left_shift),
    "__lshift__.Scalar": _binary(relax.op.left_shift),
    "__rshift__.Tensor": _binary(relax.op.right_shift),
    "__rshift__.Scalar": _binary(relax.op.right_shift),
    "scatter_add.default": _scatter_add,
    "scatter_reduce.two": _scatter_reduce,
    "clamp.default": _clamp,
    "convolution.default": _convolution,
    "batch_norm.default": _batch_norm,
    "_native_batch_norm_legit_no_training.default": _batch_norm,
    "expand.default": _expand,
    "embedding.default": _embedding,
}
