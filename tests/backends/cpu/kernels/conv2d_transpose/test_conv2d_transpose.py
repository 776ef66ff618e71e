"""Transposed convolutions, against float64 PyTorch."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from torch.nn import functional
from tvm import relax

from tests.backends.cpu.kernels.anchored import Epilogue, channels_last, check, normal, run, wide
from tests.backends.cpu.kernels.drawn import (
    EXAMPLES,
    epilogues,
    extents,
    images,
    paddings,
    pairs,
    seeds,
    targets,
    threads,
)


@EXAMPLES
@given(
    images, st.integers(1, 3), extents, extents, pairs, pairs, paddings, epilogues(), st.data(), targets, threads,
    seeds, st.booleans(),
)  # fmt: skip
def test_conv2d_transpose(
    size: tuple, groups: int, depth: int, out: int, kernel: tuple, strides: tuple, padding: tuple,
    steps: tuple[str, ...], data: st.DataObject, target: str, many: int, seed: int, is_known: bool,
) -> None:  # fmt: skip
    dilation = data.draw(st.tuples(st.integers(1, 2), st.integers(1, 2)), "dilation")
    # As Relax asks: smaller than the stride.
    extra = tuple(data.draw(st.integers(0, s - 1), "output_padding") for s in strides)
    x = normal((*size, groups * depth), seed)
    weight = normal((groups * depth, out, *kernel), seed + 1) / np.float32(depth**0.5)
    planes = wide(x).permute(0, 3, 1, 2)
    full = functional.conv_transpose2d(planes, wide(weight), None, strides, 0, 0, groups, dilation)
    full = functional.pad(full, (0, extra[1], 0, extra[0]))
    top, left, bottom, right = padding
    assume(full.shape[2] > top + bottom and full.shape[3] > left + right)
    expected = channels_last(full[:, :, top : full.shape[2] - bottom, left : full.shape[3] - right])

    epilogue = Epilogue(steps, expected.shape, seed)

    def build(b: relax.BlockBuilder, v: relax.Var, *others: relax.Var) -> relax.Expr:
        taps, behind = (relax.const(weight), others) if is_known else (others[0], others[1:])
        made = relax.op.nn.conv2d_transpose(
            v, taps, strides, padding, extra, dilation, groups, data_layout="NHWC", kernel_layout="IOHW"
        )
        return epilogue.relax(b, made, behind)

    ran = run(build, [x, *([] if is_known else [weight]), *epilogue.arrays()], target, many)
    check(ran, epilogue.numpy(expected))
    by_channel = groups > 1 and depth == out == 1
    assert by_channel or {"conv2d_transpose", "matmul"} & set(ran.templates())
