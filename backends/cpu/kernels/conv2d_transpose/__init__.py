"""Transposed convolution over channels-last images."""

from __future__ import annotations

from backends.cpu.kernels.conv2d_transpose.emit import emit_conv2d_transpose
from backends.cpu.kernels.conv2d_transpose.emit_open import emit_open_conv2d_transpose
from backends.cpu.kernels.conv2d_transpose.lower import CONV2D_TRANSPOSE, lower_conv2d_transpose
from backends.cpu.kernels.conv2d_transpose.plan import conv2d_transpose_space
from backends.cpu.kernels.template import Lower, Template
from backends.tensorir.roles import read_roles

TEMPLATE = Template(
    name=CONV2D_TRANSPOSE,
    read=read_roles,
    space=conv2d_transpose_space,
    emit=emit_conv2d_transpose,
    emit_open=emit_open_conv2d_transpose,
    claims=lambda marks: marks.is_one(CONV2D_TRANSPOSE),
    lowerings={"relax.nn.conv2d_transpose": Lower(lower_conv2d_transpose)},
)
