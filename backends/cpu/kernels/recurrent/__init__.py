"""RNN, GRU and LSTM over a whole sequence."""

from __future__ import annotations

from backends.cpu.kernels.recurrent.emit import RECURRENT, emit_open_recurrent, emit_recurrent
from backends.cpu.kernels.recurrent.plan import recurrent_space
from backends.cpu.kernels.recurrent.read import read_recurrent
from backends.cpu.kernels.template import Template

TEMPLATE = Template(
    name=RECURRENT,
    read=read_recurrent,
    space=recurrent_space,
    emit=emit_recurrent,
    emit_open=emit_open_recurrent,
    claims=lambda marks: marks.is_recurrence,
)
