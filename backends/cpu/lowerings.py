"""The operators that have templates built around them, and what writes each as a TensorIR call with packed weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm import relax

from backends.backend import Lowering
from backends.cpu.kernels.conv2d.emit import lower_conv2d
from backends.cpu.kernels.conv2d_transpose.emit import lower_conv2d_transpose
from backends.cpu.kernels.depthwise.emit import lower_depthwise
from backends.cpu.kernels.image_conv2d.emit import lower_image_conv2d
from backends.cpu.kernels.matmul.lower import lower_matmul
from backends.cpu.kernels.planar_window.lower import lower_planar_depthwise, lower_planar_pool
from backends.cpu.kernels.rolling_window.lower import lower_channels_last_pool

_Lower = Callable[[relax.BlockBuilder, relax.Call, int], "relax.Expr | None"]

LOWERINGS: dict[str, tuple[_Lower, ...]] = {
    "relax.matmul": (lower_matmul,),
    "relax.nn.conv2d_transpose": (lower_conv2d_transpose,),
    "relax.nn.conv2d": (lower_depthwise, lower_planar_depthwise, lower_image_conv2d, lower_conv2d),
    "relax.nn.max_pool2d": (lower_planar_pool, lower_channels_last_pool),
    "relax.nn.avg_pool2d": (lower_planar_pool,),
}


@dataclass(frozen=True)
class _WithLanes:
    """A lowering for panels of weights as wide as a vector."""

    lower: _Lower
    lanes: int

    def __call__(self, builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
        return self.lower(builder, call, self.lanes)


def lowerings(lanes: int) -> dict[str, tuple[Lowering, ...]]:
    """Return the lowerings by operator for vectors of so many float32 `lanes`."""
    return {
        operator: tuple(Lowering(lower.__name__, _WithLanes(lower, lanes)) for lower in tried)
        for operator, tried in LOWERINGS.items()
    }
