"""One convolution, through every kernel that it becomes, against float64 PyTorch."""

from __future__ import annotations

from math import prod

import numpy as np
from tvm import relax

from tests.backends.cpu.kernels.anchored import Epilogue, check, convolve, normal, run


def check_convolution(
    size: tuple, channels: tuple, kernel: tuple, strides: tuple, padding: tuple, dilation: tuple,
    steps: tuple[str, ...],
    target: str, many: int, seed: int, by_planes: bool = False, is_known: bool = True,
) -> list[str]:  # fmt: skip
    """Compare one convolution with PyTorch; `by_planes`: the image lies so; `is_known`: the weights are constant.
    Returns the templates that made it."""
    groups, depth, out = channels
    # An image smaller than the window grows to one output pixel.
    spans = [(k - 1) * d + 1 - a - b for k, d, a, b in zip(kernel, dilation, padding[:2], padding[2:], strict=True)]
    image = [max(extent, span) for extent, span in zip(size[1:], spans, strict=True)]
    data = normal((size[0], *image, groups * depth), seed)
    weight = normal((groups * out, depth, *kernel), seed + 1) / np.float32((depth * prod(kernel)) ** 0.5)
    expected = convolve(data, weight, strides, padding, dilation, groups)
    epilogue = Epilogue(steps, expected.shape, seed)

    def build(b: relax.BlockBuilder, x: relax.Var, *others: relax.Var) -> relax.Expr:
        taps, extra = (relax.const(weight), others) if is_known else (others[0], others[1:])
        image = b.emit(relax.op.permute_dims(x, [0, 2, 3, 1])) if by_planes else x
        conv = relax.op.nn.conv2d(image, taps, strides, padding, dilation, groups, data_layout="NHWC")
        return epilogue.relax(b, conv, extra)

    image_of = np.ascontiguousarray(data.transpose(0, 3, 1, 2)) if by_planes else data
    given = [] if is_known else [weight]
    ran = run(build, [image_of, *given, *epilogue.arrays()], target, many)
    check(ran, epilogue.numpy(expected))
    return ran.templates()
