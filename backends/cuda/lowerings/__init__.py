"""Products as anchors: matmuls whose operands lie as they are, and convolutions of images with channels last.

Sums are float32 whatever is multiplied; the result is rounded behind them, in the same kernel.
"""

from __future__ import annotations

from collections.abc import Mapping

from backends.backend import Lowering
from backends.cuda.lowerings.conv2d import lower_conv2d
from backends.cuda.lowerings.conv2d_transpose import lower_conv2d_transpose
from backends.cuda.lowerings.matmul import lower_matmul
from backends.cuda.lowerings.narrow_shift import NarrowShift
from backends.cuda.lowerings.product import ProductLowering

LOWERINGS: Mapping[str, tuple[Lowering, ...]] = {
    "relax.add": (NarrowShift(),),
    "relax.matmul": (ProductLowering("matmul", lower_matmul),),
    "relax.nn.conv2d": (ProductLowering("conv2d", lower_conv2d),),
    "relax.nn.conv2d_transpose": (ProductLowering("conv2d_transpose", lower_conv2d_transpose),),
}
"""By operator."""
