"""Rows times a constant matrix whose weights have 4 bits, in blocks with a scale each."""

from __future__ import annotations

from backends.cpu.kernels.matmul_nbits.emit import emit_nbits, emit_open_nbits
from backends.cpu.kernels.matmul_nbits.plan import nbits_space
from backends.cpu.kernels.matmul_nbits.read import read_nbits
from backends.cpu.kernels.template import Template
from partition.access import MATMUL_NBITS

TEMPLATE = Template(
    name=MATMUL_NBITS,
    read=read_nbits,
    space=nbits_space,
    emit=emit_nbits,
    claims=lambda marks: marks.is_one(MATMUL_NBITS),
    emit_open=emit_open_nbits,
)
