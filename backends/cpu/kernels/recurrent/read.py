"""Reads a PrimFunc that says it is a recurrence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tvm import tirx
from tvm.ir import Var

from backends.tensorir.stages import dtype_of
from fusion.declined import Declined
from partition.recurrence import LENGTHS, Recurrence, recurrence_of


@dataclass(frozen=True)
class RecurrentKernel:
    """A recurrence in float32.

    Attributes:
        recurrence: Its equations.
        parameters: By the names that these have for them.
    """

    recurrence: Recurrence
    parameters: Mapping[str, Var]


def read_recurrent(func: tirx.PrimFunc) -> RecurrentKernel:
    """Return the recurrence that `func` is.

    Raises:
        Declined: It is none in float32.
    """
    recurrence = recurrence_of(func)
    if recurrence is None:
        raise Declined("no recurrence")
    parameters = dict(zip(recurrence.parameters(), func.params, strict=True))
    if any(dtype_of(param) != "float32" for name, param in parameters.items() if name != LENGTHS):
        raise Declined("not in float32")
    return RecurrentKernel(recurrence, parameters)
