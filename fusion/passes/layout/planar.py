"""Windows over N, C, H, W that leave the channels apart: such an operator runs on the storage its data already has."""

from __future__ import annotations

from tvm import relax

from fusion.passes.layout import order as orders
from fusion.passes.layout.placed import Placed
from fusion.passes.rebuild import call_name

_MOST_PHASES = 16  # sorting a row's elements: windows of 32x32 over 64x128x128 took 173 us, of 16x16 100 us, of 8x8 64


def runs_row_major(call: relax.Call, data: Placed) -> bool:
    """Return whether a depthwise convolution or a pooling of float32 images is to read and write them row-major."""
    last = orders.channels_last(len(data.shape))
    if not data.is_row_major or orders.same_storage(data.order, last, data.shape):
        return False
    if str(call.ty.dtype.dtype) != "float32" or int(getattr(call.attrs, "strides", (1,))[-1]) > _MOST_PHASES:
        return False
    match call_name(call):
        case "nn.conv2d":
            return int(call.attrs.groups) == data.shape[1] == int(call.ty.shape[1])
        case "nn.max_pool2d":
            return True
        case "nn.avg_pool2d":
            return not call.attrs.ceil_mode
        case _:
            return False
