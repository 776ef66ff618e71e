"""What storing a tensor in one order or another costs on a CPU."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import relax
from tvm.ir import GenericConst

from backends.cpu.costs import TRANSPOSE_BYTES_PER_CYCLE, TRANSPOSE_LAUNCH_CYCLES
from fusion.bindings import call_name, data_of

_MOST_PHASES = 16  # sorting a row's elements: windows of 32x32 over 64x128x128 took 173 us, of 16x16 100 us, of 8x8 64
_DTYPES = {"nn.conv2d": {"float32", "bfloat16"}, "nn.conv2d_transpose": {"float32"}}
"""Of operands that convolutions with an anchor have; their results are float32."""
_OF_BYTES = (("uint8", "int8", "int32"), ("int16", "int32"))
"""Those of operands and result, each once, of convolutions of bytes and of int16 that were bytes."""


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
        dtypes, result = {str(arg.ty.dtype.dtype): None for arg in call.args}, str(call.ty.dtype.dtype)
        if call_name(call) == "nn.conv2d" and (*dtypes, result) in _OF_BYTES:
            return "" if isinstance(weights, GenericConst) else "its weights in bytes are no constant"
        if result != "float32" or len(dtypes) > 1 or not dtypes.keys() <= _DTYPES[call_name(call)]:
            return f"it computes in {' and '.join(dict.fromkeys((*dtypes, result)))}"
        is_known = isinstance(weights, GenericConst) or "bfloat16" not in dtypes
        return "" if is_known else "its weights in bfloat16 are no constant"

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
