"""What storing a tensor in one order or another costs on a CPU."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import relax
from tvm.ir import GenericConst

from backends.cpu.costs import TRANSPOSE_BYTES_PER_CYCLE, TRANSPOSE_LAUNCH_CYCLES
from fusion.bindings import call_name, data_of

_MOST_PHASES = 16  # sorting a row's elements: windows of 32x32 over 64x128x128 took 173 us, of 16x16 100 us, of 8x8 64
_OF_FLOAT32 = {("float32", "float32", "float32"): False}
_ANCHORS = {
    "nn.conv2d": {
        **_OF_FLOAT32,
        ("bfloat16", "bfloat16", "float32"): True,
        ("uint8", "int8", "int32"): True,
        ("int16", "int16", "int32"): True,
    },
    "nn.conv2d_transpose": _OF_FLOAT32,
}
"""By operator and the dtypes of image, weights and result, whether the weights of an anchor have to be constants."""


@dataclass(frozen=True)
class CpuLayouts:
    """A `LayoutPolicy`.

    Attributes:
        lanes: float32 lanes of a vector.
    """

    lanes: int

    def move_cycles(self, elements: int) -> float:
        """Return an estimate for a transpose of float32 elements, on two cores."""
        return 2 * 4 * elements / TRANSPOSE_BYTES_PER_CYCLE + TRANSPOSE_LAUNCH_CYCLES

    def padding_cycles(self, rows: int, columns: int) -> float:
        """Return what the lanes cost that the last columns leave empty."""
        return rows * (-columns % self.lanes) / self.lanes

    def why_not_channels_last(self, call: relax.Call, weights: relax.Expr) -> str:
        """See `LayoutPolicy`."""
        image, weight, result = (str(part.ty.dtype.dtype) for part in (*call.args, call))
        known = _ANCHORS[call_name(call)].get((image, weight, result))
        if known is None:
            return f"it computes in {' and '.join(dict.fromkeys((image, weight, result)))}"
        return f"its weights in {weight} are no constant" if known and not isinstance(weights, GenericConst) else ""

    def has_row_major_kernel(self, call: relax.Call) -> bool:
        """Return whether a depthwise convolution or a pooling of float32 images can read and write N, C, H, W."""
        if str(call.ty.dtype.dtype) != "float32" or int(getattr(call.attrs, "strides", (1,))[-1]) > _MOST_PHASES:
            return False
        match str(call.op.name):
            case "relax.nn.conv2d":
                return int(call.attrs.groups) == int(data_of(call).ty.shape[1]) == int(call.ty.shape[1])
            case "relax.nn.max_pool2d":
                return True
            case "relax.nn.avg_pool2d":
                return not call.attrs.ceil_mode
            case _:
                return False
