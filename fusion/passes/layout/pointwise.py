"""1x1 convolutions of row-major images, which are products of the weights with the image as it lies."""

from __future__ import annotations

from math import prod

from tvm import relax
from tvm.ir import GenericConst

from fusion.passes.layout import order as orders
from fusion.passes.layout.placed import Placed, move, row_major
from fusion.passes.rebuild import constant

_BYTES_PER_CYCLE = 3.0  # what a transpose reads and writes; 2.5 to 5 measured
_TRANSPOSE_CYCLES = 10_000  # a kernel more, its fork and join included


def as_product(builder: relax.BlockBuilder, call: relax.Call, data: Placed, lanes: int) -> Placed | None:
    """Return a 1x1 convolution of a row-major image, N x C x H x W, as the product of its weights, O x C (G x O/G x C/G
    in groups), with N images of C x HW; None where it is another convolution or channels-last costs less.

    Neighbouring pixels are lanes then, and nothing is transposed: on two Zen 4 cores 256 to 128 channels over 56x56
    take 958 us, 1146 with the transposes around the channels-last form; 16 to 32 over 240x240 take 306 us, not 1680.
    """
    weight, attrs = call.args[1], call.attrs
    if not data.is_row_major or attrs.data_layout != "NCHW" or not isinstance(weight, GenericConst):
        return None
    if orders.same_storage(data.order, orders.channels_last(len(data.shape)), data.shape):
        return None  # one pixel lies channels-last as well, and its channels fill lanes
    values = weight.value.numpy()
    if any(int(padding) for padding in attrs.padding) or values.shape[1:] == (1, 1, 1) or not prod(data.shape):
        return None
    batch, made, height, width = (int(extent) for extent in call.ty.shape)
    channels, groups, pixels = data.shape[1], int(attrs.groups), height * width
    if values.shape[2:] != (1, 1) or not _pays(made * values.shape[1], channels + made, pixels, lanes):
        return None
    grouped = (groups,) if groups > 1 else ()
    matrix = values.reshape(*grouped, made // groups, channels // groups)
    read = builder.emit(_strided(builder, data, [int(stride) for stride in attrs.strides]))
    image = builder.emit(relax.op.reshape(read, (batch, *grouped, channels // groups, pixels)))
    product = builder.emit(relax.op.matmul(constant(matrix), image))
    return row_major(builder.emit(relax.op.reshape(product, (batch, made, height, width))))


def _strided(builder: relax.BlockBuilder, image: Placed, strides: list[int]) -> relax.Expr:
    """Return the pixels of a row-major image that a 1x1 convolution reads."""
    stored = move(builder, image, orders.identity(len(image.shape)))
    if strides == [1, 1]:
        return stored
    return relax.op.strided_slice(stored, [2, 3], [0, 0], list(image.shape[2:]), strides)


def _pays(weights: int, channels: int, pixels: int, lanes: int) -> bool:
    """Return whether the lanes left empty by the last pixels of an image cost less than transposing it and the
    result."""
    empty = -pixels % lanes
    return weights * empty / lanes < 2 * 4 * channels * pixels / _BYTES_PER_CYCLE + 2 * _TRANSPOSE_CYCLES
