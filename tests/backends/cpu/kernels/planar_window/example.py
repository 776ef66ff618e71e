"""A depthwise convolution of an image that lies plane by plane."""

from __future__ import annotations

from tvm import relax
from tvm.relax import op

from tests.backends.cpu.kernels.examples import Example, NearMiss, convolution


def windows_past_the_padding(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return op.nn.avg_pool2d(x, (3, 3), (2, 2), ceil_mode=True)


def bytes_(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return op.nn.max_pool2d(b.emit(op.astype(x, "int8")), (2, 2))


EXAMPLES = (Example(convolution(6, 1, 6, 3, layout="NCHW"), (1, 6, 20, 37)),)

IMAGE = (1, 3, 8, 8)
NEAR_MISSES = (
    NearMiss(
        windows_past_the_padding,
        IMAGE,
        "with ceil_mode, windows may lie past the padding, and what they count is open",
    ),
    NearMiss(bytes_, IMAGE, "it computes in int8"),
)
