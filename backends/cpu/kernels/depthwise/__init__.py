"""Depthwise convolution over channels-last images, and convolution in groups of which a vector has several."""

from __future__ import annotations

from backends.cpu.kernels.depthwise.emit import emit_depthwise
from backends.cpu.kernels.depthwise.emit_open import emit_open_depthwise
from backends.cpu.kernels.depthwise.lower import GROUPED, is_depthwise, lower_depthwise
from backends.cpu.kernels.depthwise.plan import depthwise_space
from backends.cpu.kernels.template import Lower, Template
from backends.tensorir.roles import read_roles
from partition.access import DEPTHWISE

TEMPLATE = Template(
    name=DEPTHWISE,
    read=read_roles,
    space=depthwise_space,
    emit=emit_depthwise,
    emit_open=emit_open_depthwise,
    claims=lambda marks: marks.is_one(DEPTHWISE, GROUPED),
    lowerings={"relax.nn.conv2d": Lower(lower_depthwise, is_depthwise)},
)
