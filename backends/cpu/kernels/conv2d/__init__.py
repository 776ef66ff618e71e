"""Convolution over channels-last images, as a sum over taps or by Winograd's method."""

from __future__ import annotations

from backends.cpu.kernels.conv2d.emit import emit_conv2d
from backends.cpu.kernels.conv2d.emit_open import emit_open_conv2d
from backends.cpu.kernels.conv2d.lower import lower_conv2d
from backends.cpu.kernels.conv2d.plan import conv2d_space
from backends.cpu.kernels.template import Lower, Template
from backends.tensorir.roles import read_roles
from partition.access import CONV2D

TEMPLATE = Template(
    name=CONV2D,
    read=read_roles,
    space=conv2d_space,
    emit=emit_conv2d,
    emit_open=emit_open_conv2d,
    claims=lambda marks: marks.is_one(CONV2D),
    lowerings={"relax.nn.conv2d": Lower(lower_conv2d)},
)
