"""Reductions that are outputs, as a reduction that stays in the kernel and a stage that stores it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from tvm import tirx
from tvm.ir import TensorLoad, Var

from backends.tensorir.stages import Stage, dims_of, dtype_of
from fusion.structural import map_nodes


def stored_apart(stages: Sequence[Stage], outputs: Collection[Var]) -> list[Stage]:
    """Return stages in which no reduction is an output: those that were are copied into it."""
    made: dict[Var, Var] = {}
    found = []
    for stage in stages:
        if stage.combine is None or stage.buffer not in outputs:
            found.append(_reading(stage, made))
            continue
        sums = tirx.decl_buffer(dims_of(stage.buffer), dtype_of(stage.buffer), f"{stage.buffer.name}_reduced")
        found.append(replace(_reading(stage, made), buffer=sums, offsets=()))
        value = tirx.BufferLoad(sums, [axis.var for axis in stage.spatial])
        found.append(Stage(stage.buffer, stage.spatial, (), value, offsets=stage.offsets))
        made[stage.buffer] = sums
    return found


def _reading(stage: Stage, made: Mapping[Var, Var]) -> Stage:
    def load(load: TensorLoad) -> TensorLoad:
        return tirx.BufferLoad(made.get(load.source, load.source), list(load.indices))

    return replace(stage, value=map_nodes(stage.value, (TensorLoad, load))) if made else stage
