"""What lowerings ask of the operands of a call before they write it; each question raises `Declined` where the answer
is no."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt
from tvm import relax
from tvm.ir import GenericConst

from fusion.declined import Declined
from fusion.shapes import is_static
from fusion.tensors import as_numpy

FLOAT32, BFLOAT16 = "float32", "bfloat16"
JOINED = {BFLOAT16: 2, "int16": 2, "int8": 4}
"""By the dtype of weights, the elements of k that lie together, where these are several."""
BYTES, PAIRS = ("uint8", "int8", "int32"), ("int16", "int16", "int32")
"""Of products of bytes: the left operand, the weights, and the result."""


def has_known_shapes(call: relax.Call) -> bool:
    """Return whether the shapes of all tensors that `call` reads and makes are known before the run."""
    return all(is_static(part) for part in (call, *call.args) if isinstance(part.ty, relax.TensorType))


def is_constant(expr: relax.Expr) -> bool:
    """Return whether a tensor is a weight."""
    return isinstance(expr, GenericConst)


def constant_weights(call: relax.Call) -> npt.NDArray[Any]:
    """Return the weights that a convolution or a product reads."""
    _, weights = call.args
    if not is_constant(weights):
        raise Declined("its weights are no constant")
    return as_numpy(weights.value)


def check_dtypes(call: relax.Call, *allowed: str) -> None:
    """Check that all operands are of one of the `allowed` dtypes, and the result of float32."""
    result, *types = (str(part.ty.dtype.dtype) for part in (call, *call.args))
    if result != FLOAT32 or types[0] not in allowed or len(set(types)) > 1:
        raise Declined(f"it computes in {' and '.join(dict.fromkeys([*types, result]))}")


def are_bytes(call: relax.Call) -> bool:
    """Return whether a product or a convolution is one of bytes, or of int16 that were bytes."""
    return tuple(str(part.ty.dtype.dtype) for part in (*call.args, call)) in (BYTES, PAIRS)


def check_elements(*tensors: relax.Expr) -> None:
    """Check that there is something to compute."""
    if any(0 in [int(extent) for extent in tensor.ty.shape] for tensor in tensors):
        raise Declined("it has no elements")


def check_layouts(call: relax.Call, images: str, weights: str) -> None:
    """Check the orders in which a convolution reads its images and its weights."""
    attrs = call.attrs
    if attrs.kernel_layout != weights:
        raise Declined(f"its weights are stored {attrs.kernel_layout}, not {weights}")
    if attrs.data_layout != images:
        raise Declined(f"its images are stored {attrs.data_layout}, not {images}")


def check_matrices(call: relax.Call) -> None:
    """Check that a product is one of matrices that have elements, in float32 or of bytes."""
    if not are_bytes(call):
        check_dtypes(call, FLOAT32, BFLOAT16)
    if any(len(operand.ty.shape) < 2 for operand in call.args):
        raise Declined("an operand of it is a vector")
    check_elements(*call.args)


def has_narrow_groups(weight: Sequence[int], groups: int, lanes: int) -> bool:
    """Return whether a convolution with weights O x I x H x W makes whole groups with each vector, of no more channels
    than it has, and reads no more for it than a vector."""
    channels, members = int(weight[0]), int(weight[1])
    return groups > 1 and lanes % (channels // groups) == 0 and (channels // groups) % members == 0
