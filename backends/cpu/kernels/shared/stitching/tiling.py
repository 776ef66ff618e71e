"""Which axes several stages share, so that one tile of all of them is computed before the next.

After the tile analysis of BladeDISC's CPU stitch (`StitchCPUAnalysis`), with union-find in place of a fixed point.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from tvm.ir import Var

from backends.tensorir.accesses import Access, Accesses
from backends.tensorir.collapsing import Run, collapse_runs, run_extent
from backends.tensorir.extents import Extent, is_same, sizes_of
from backends.tensorir.stages import Axis, Stage

# So many tiles there are to be where one symbol is 1, for any number of threads.
_OPEN_TILES = 8


@dataclass(frozen=True, eq=False)
class SharedAxis:
    """One run of axes of each stage that always has the same value in producer and consumer.

    Attributes:
        members: The run of each stage, in the order of the stages.
    """

    members: tuple[Run, ...]

    @property
    def extent(self) -> Extent:
        """Trip count, the same for all members."""
        return run_extent(self.members[-1])

    def has(self, var: Var) -> bool:
        """Return whether the axis variable belongs to this shared axis."""
        return any(axis.var.same_as(var) for run in self.members for axis in run)


@dataclass
class _Unions:
    """Disjoint sets of axis variables; a set can be marked as not shareable."""

    parent: dict[Var, Var] = field(default_factory=dict)
    broken: set[Var] = field(default_factory=set)

    def find(self, var: Var) -> Var:
        root = var
        while root in self.parent:
            root = self.parent[root]
        return root

    def join(self, a: Var, b: Var) -> None:
        a, b = self.find(a), self.find(b)
        if not a.same_as(b):
            self.parent[a] = b
            if a in self.broken:
                self.broken.add(b)

    def break_(self, var: Var) -> None:
        self.broken.add(self.find(var))


def shared_axes(stages: Sequence[Stage], accesses: Mapping[Var, Accesses]) -> list[SharedAxis]:
    """Return the axes that all stages share, in the order of the last stage's dimensions.

    A producer's dimension and a consumer's axis are one if every load indexes that dimension with exactly that axis.
    A set is shared if it has one spatial axis of each stage. Of a single stage all axes are, collapsed into runs.
    """
    if len(stages) == 1:
        return [SharedAxis((run,)) for run in collapse_runs(stages[0].spatial, accesses[stages[0].buffer])]
    produced = {stage.buffer: stage for stage in stages}
    unions = _Unions()
    for stage in stages:
        own = {axis.var for axis in stage.spatial}
        for axis in stage.reduce:
            unions.break_(axis.var)
        for access in accesses[stage.buffer].loads:
            if access.buffer in produced:
                _join_dimensions(unions, produced[access.buffer], access, own)
    return [shared for axis in stages[-1].spatial if (shared := _gather(unions, axis, stages)) is not None]


def merge_open(shared: Sequence[SharedAxis], accesses: Sequence[Accesses]) -> list[SharedAxis]:
    """Return neighbours as one where a symbol would divide to tell them apart, and every stage walks on."""
    merged: list[SharedAxis] = []
    for axis in shared:
        if merged and not isinstance(axis.extent, int):
            joined = SharedAxis(tuple(a + b for a, b in zip(merged[-1].members, axis.members, strict=True)))
            if all(len(collapse_runs(run, own)) == 1 for run, own in zip(joined.members, accesses, strict=True)):
                merged[-1] = joined
                continue
        merged.append(axis)
    return merged


def _join_dimensions(unions: _Unions, producer: Stage, access: Access, own: set[Var]) -> None:
    for axis, position in zip(producer.spatial, access.indices, strict=True):
        if isinstance(position, Var) and position in own:
            unions.join(axis.var, position)
        else:
            unions.break_(axis.var)


def _gather(unions: _Unions, last: Axis, stages: Sequence[Stage]) -> SharedAxis | None:
    root = unions.find(last.var)
    if root in unions.broken:
        return None
    members = []
    for stage in stages:
        mine = [axis for axis in stage.spatial if unions.find(axis.var).same_as(root)]
        if len(mine) != 1 or not is_same(mine[0].extent, last.extent):
            return None
        members.append((mine[0],))
    return SharedAxis(tuple(members))


def cluster_stages(stages: Sequence[Stage], accesses: Mapping[Var, Accesses], parallelism: int) -> list[list[Stage]]:
    """Cut the stages into the longest runs that share enough axes to be tiled together; each is one parallel loop."""
    clusters: list[list[Stage]] = []
    first = 0
    while first < len(stages):
        ends = range(len(stages), first, -1)
        end = next(end for end in ends if end == first + 1 or _joinable(stages[first:end], accesses, parallelism))
        clusters.append(list(stages[first:end]))
        first = end
    return clusters


def _joinable(stages: Sequence[Stage], accesses: Mapping[Var, Accesses], parallelism: int) -> bool:
    shared = shared_axes(stages, accesses)
    if not shared:
        return False
    tiles, alone = (prod(axis.extent for axis in axes) for axes in (shared, stages[-1].spatial))
    if isinstance(tiles, int) and isinstance(alone, int):
        return tiles >= min(parallelism, alone)
    sizes = zip(sizes_of(tiles, alone), sizes_of(alone, tiles), strict=True)
    return all(many >= min(max(parallelism, _OPEN_TILES), most) for many, most in sizes)
