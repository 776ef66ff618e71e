"""Convolution of an image of few channels that lies plane by plane: a network's first layer."""

from __future__ import annotations

from backends.cpu.kernels.image_conv2d.emit import emit_image_conv2d
from backends.cpu.kernels.image_conv2d.emit_open import emit_open_image_conv2d
from backends.cpu.kernels.image_conv2d.lower import has_few_channels, lower_image_conv2d
from backends.cpu.kernels.image_conv2d.plan import image_conv2d_space
from backends.cpu.kernels.template import Lower, Template
from backends.tensorir.roles import read_roles
from partition.access import IMAGE_CONV2D

TEMPLATE = Template(
    name=IMAGE_CONV2D,
    read=read_roles,
    space=image_conv2d_space,
    emit=emit_image_conv2d,
    emit_open=emit_open_image_conv2d,
    claims=lambda marks: marks.is_one(IMAGE_CONV2D),
    lowerings={"relax.nn.conv2d": Lower(lower_image_conv2d, has_few_channels)},
)
