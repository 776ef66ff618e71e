"""What kernels with several anchors are read by: which stages lie between two of them, and what is made of each."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import tirx
from tvm.ir import Var
from tvm.s_tir.stmt import SBlock

from backends.tensorir.extents import is_same
from backends.tensorir.roles import Output, compose, result_of
from backends.tensorir.stages import Axis, Stage, dims_of, is_at, loads
from fusion.declined import Declined


def between(stages: Sequence[Stage], first: SBlock | None, last: SBlock | None) -> list[Stage]:
    """Return the stages after that of `first` and before that of `last`."""
    places = {stage.buffer: place for place, stage in enumerate(stages)}
    start = 0 if first is None else places[result_of(first)] + 1
    return list(stages[start : None if last is None else places[result_of(last)]])


def in_place(anchor: SBlock, behind: Sequence[Stage], buffer: Var) -> Output:
    """Return how `buffer` follows from the result of `anchor`, each element from that at its own coordinates.

    Raises:
        Declined: It does not.
    """
    result = result_of(anchor)
    (output,) = compose(result, [stage for stage in behind if not stage.buffer.same_as(result)], [buffer])
    axes = map(Axis, output.coordinates, dims_of(buffer))
    same = len(dims_of(buffer)) == len(dims_of(result)) and all(map(is_same, dims_of(buffer), dims_of(result)))
    if not same or not all(map(is_at, output.indices, axes)):
        raise Declined(f"{buffer.name} is moved between the convolutions")
    return output


def results_behind(func: tirx.PrimFunc, stages: Sequence[Stage], last: SBlock) -> tuple[Output, ...]:
    """Return the results of `func`, all of which the last anchor and what is behind it make.

    Raises:
        Declined: One is made before.
    """
    epilogue = between(stages, last, None)
    written = {stage.buffer for stage in stages}
    stored = [param for param in func.params if param in written]
    if not {result_of(last), *(stage.buffer for stage in epilogue)}.issuperset(stored):
        raise Declined("a value between the convolutions is needed outside")
    return compose(result_of(last), epilogue, stored)


def check_loads(stages: Sequence[Stage], outputs: Sequence[Output]) -> None:
    """Raise where an epilogue reads what the kernel does not keep.

    Raises:
        Declined: One does.
    """
    made = {stage.buffer for stage in stages}
    if any(load.source in made for output in outputs for load in loads(output.value)):
        raise Declined("an epilogue reads a value between the convolutions")
