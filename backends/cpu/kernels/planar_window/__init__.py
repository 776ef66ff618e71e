"""Windows over images that lie plane by plane: depthwise convolution, maximum and average."""

from __future__ import annotations

from backends.cpu.kernels.planar_window.emit import emit_planar
from backends.cpu.kernels.planar_window.emit_open import emit_open_planar
from backends.cpu.kernels.planar_window.lower import (
    PLANAR,
    is_planar_depthwise,
    is_planar_pool,
    lower_planar_depthwise,
    lower_planar_pool,
)
from backends.cpu.kernels.planar_window.plan import planar_space
from backends.cpu.kernels.template import Lower, Template
from backends.tensorir.roles import read_roles

TEMPLATE = Template(
    name=PLANAR,
    read=read_roles,
    space=planar_space,
    emit=emit_planar,
    emit_open=emit_open_planar,
    claims=lambda marks: marks.is_one(PLANAR),
    lowerings={
        "relax.nn.conv2d": Lower(lower_planar_depthwise, is_planar_depthwise),
        "relax.nn.max_pool2d": Lower(lower_planar_pool, is_planar_pool),
        "relax.nn.avg_pool2d": Lower(lower_planar_pool, is_planar_pool),
    },
)
