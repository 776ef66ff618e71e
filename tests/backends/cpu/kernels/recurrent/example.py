"""An LSTM."""

from __future__ import annotations

from tvm import tirx

from fusion.frontends.recurrence import RecurrenceSizes, recurrence_func
from partition.recurrence import Recurrence
from tests.backends.cpu.kernels.examples import KernelExample


def lstm() -> tirx.PrimFunc:
    recurrence = Recurrence("LSTM", (False, True), (("Sigmoid", "Tanh", "Tanh"),) * 2)
    return recurrence_func(recurrence, RecurrenceSizes(steps=16, batch=4, hidden=128), "float32")


EXAMPLES = (KernelExample(lstm, "an LSTM in both directions, 16 steps, 4 sequences, 128 hidden units"),)
