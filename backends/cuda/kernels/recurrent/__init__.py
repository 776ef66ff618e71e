"""Recurrent layers (RNN, GRU, LSTM) over whole sequences, whose inputs are multiplied before, for all steps at once."""

from __future__ import annotations

from tvm import tirx

from backends.cuda.kernels.recurrent.emit import THREADS, emit_recurrence
from backends.cuda.kernels.template import CudaTemplate, ScheduleContext
from backends.tensorir.result import Scheduled

_NAME = "recurrent"


def _schedule(func: tirx.PrimFunc, ctx: ScheduleContext) -> Scheduled:
    return Scheduled(emit_recurrence(func), _NAME, f"a block a sequence and direction, {THREADS} threads")


TEMPLATE = CudaTemplate(_NAME, _schedule)
