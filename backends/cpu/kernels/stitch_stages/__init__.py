"""Stages without an anchor, stitched into tiles: elementwise work, reductions, transposes, pools, concats, gathers."""

from __future__ import annotations

from backends.cpu.kernels.stitch_stages.emit import STITCH_STAGES, emit_open_stages, emit_stages
from backends.cpu.kernels.stitch_stages.plan import stitch_space
from backends.cpu.kernels.stitch_stages.read import read_stage_group
from backends.cpu.kernels.template import Template

TEMPLATE = Template(
    name=STITCH_STAGES,
    read=read_stage_group,
    space=stitch_space,
    emit=emit_stages,
    emit_open=emit_open_stages,
)
