"""The loops of stages that are stitched into tiles, as a kernel or as a part of another one.

What it makes of softmax over [128, 197] (after BladeDISC's CPU stitch):
```
for t in T.parallel(threads):
    for row in range(t * 128 // threads, (t + 1) * 128 // threads):
        max = ...   vector loop, 4 accumulators     # reduced axis is contiguous: reduce_row
        out[row, :] = exp ...   vector loop         # what is expensive and read twice waits there, others in scratch
        sum = ...   vector loop, 4 accumulators
        out[row, :] = ...   vector loop             # everything cheap is inlined, epilogues included
```
and of a 3x3 max pool over NHWC: `for (h, w) in T.parallel: for block of channels: for kh, kw: acc = max(acc, x)`.
An elementwise chain is the same with one stage; its axes are merged first and its long rows cut into blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from tvm import tirx
from tvm.ir import Var

from backends.cpu.kernels.shared.stitching.cluster import Cluster
from backends.cpu.kernels.shared.stitching.plan import Tiling
from backends.cpu.kernels.shared.stitching.stage_group import StageGroup
from backends.cpu.kernels.shared.stitching.tiling import cluster_stages
from backends.cpu.machine import Machine
from backends.tensorir.accesses import stage_accesses
from backends.tensorir.emit import Nest
from backends.tensorir.flat_buffers import DistinctSizes
from backends.tensorir.stages import Stage, dims_of, dtype_of


def stitch(stages: list[Stage], memory: Mapping[Var, Var], machine: Machine) -> tirx.Stmt:
    """Return the loops of `stages` as part of another kernel's thread.

    `memory` says what holds a buffer that is read or written outside of them; each keeps its row-major order.
    """
    outputs = {stage.buffer for stage in stages if stage.buffer in memory}
    return StitchedLoops.make(StageGroup.of(stages, outputs), machine, Tiling(), memory).emit()


@dataclass
class StitchedLoops:
    """The stages that live in memory, cut into clusters.

    Attributes:
        clusters: Each becomes one loop.
        words: What `emit` says of each.
        full: What holds a buffer that is not a tile's own, as far as that is known.
    """

    clusters: list[list[Stage]]
    group: StageGroup
    machine: Machine
    tiling: Tiling
    words: list[str]
    full: dict[Var, Var]

    @classmethod
    def make(cls, group: StageGroup, machine: Machine, tiling: Tiling, memory: Mapping[Var, Var]) -> StitchedLoops:
        """Return the clusters of `group`; `memory` says what holds a buffer that the loops do not allocate."""
        return cls(
            clusters=cluster_stages(group.kept, group.accesses, tiling.tasks),
            group=group,
            machine=machine,
            tiling=tiling,
            words=[],
            full=dict(memory),
        )

    def emit(self) -> tirx.Stmt:
        """Return the loops of all clusters."""
        nest, sizes = Nest(), DistinctSizes()
        inlined, outputs = self.group.inlined, self.group.outputs
        for cluster, later in zip(self.clusters, self._read_later(), strict=True):
            for stage in cluster:
                if stage.buffer in outputs or stage.buffer in later:
                    made = stage.buffer if stage.buffer in outputs else _flat_copy(stage.buffer, sizes)
                    self.full.setdefault(stage.buffer, made)
            nest.extend(tirx.AllocBuffer(self.full[s.buffer]) for s in cluster if s.buffer in later - outputs)
            tile = Cluster.make(cluster, inlined, self.full, self.machine, self.tiling)
            tile.emit(nest, sizes)
            self.words.append(tile.describe())
        return nest.finish()

    def _read_later(self) -> list[set[Var]]:
        """Return for each cluster what the clusters behind it read."""
        later: list[set[Var]] = [set()]
        for cluster in reversed(self.clusters[1:]):
            later.append(later[-1].union(*(_reads(stage, self.group.inlined) for stage in cluster)))
        return later[::-1]

    def describe(self) -> str:
        """Return what the loops that `emit` wrote are."""
        return f"{'; '.join(self.words)}, {self.tiling}"


def _reads(stage: Stage, inlined: Mapping[Var, Stage]) -> set[Var]:
    return {access.buffer for access in stage_accesses(stage, inlined).loads}


def _flat_copy(buffer: Var, sizes: DistinctSizes) -> Var:
    """Return a one-dimensional buffer for an intermediate one, as CompactBufferAllocation trusts the dimensions."""
    return sizes.allocate(prod(dims_of(buffer)), dtype_of(buffer), buffer.name)
