"""Reads which elements neighbouring results of a reduction take of each tensor, and how these lie to sectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tvm.ir import TensorLoad, Var

from backends.cuda.kernels.affine import AffineIndex, analyzer_over
from backends.cuda.kernels.runs import SECTOR_BYTES
from backends.tensorir.accesses import flat_index
from backends.tensorir.emit import Expr, int64
from backends.tensorir.stages import Stage, item_bytes_of, loads, shape_of
from fusion.structural import contains


@dataclass(frozen=True)
class AffineRead:
    """One read of a tensor, at `start + sum(steps * results' axes) + sum(inner * reduced axes)`, by its row-major
    position.

    Attributes:
        results: Extents of the results' axes.
        reduced: Extents of the reduced ones.
    """

    buffer: Var
    start: int
    steps: tuple[int, ...]
    inner: tuple[int, ...]
    results: tuple[int, ...]
    reduced: tuple[int, ...]

    @property
    def item_bytes(self) -> int:
        """Of an element."""
        return item_bytes_of(self.buffer)

    @property
    def neighbours(self) -> int:
        """Results that read elements next to each other."""
        return max((extent for extent, step in zip(self.results, self.steps, strict=True) if step == 1), default=1)

    @property
    def is_ordered(self) -> bool:
        """Whether later results read later elements, neighbours neighbours."""
        long = [place for place, extent in enumerate(self.results) if extent > 1]
        if not long or self.steps[long[-1]] != 1:
            return False
        return all(self.steps[at] > span(self.steps[at + 1 :], self.results[at + 1 :]) for at in long)

    @property
    def is_repeated(self) -> bool:
        """Whether other results read the same again, between neighbours of which it grows by one, as weights of each
        channel do."""
        is_along = span(self.steps, self.results) == self.neighbours - 1 and any(self.inner)
        return is_along and self.neighbours < prod(self.results)

    @property
    def is_cut(self) -> bool:
        """Whether sectors begin inside of what neighbouring threads read: a step between runs of neighbours is of no
        whole sectors."""
        steps = [step for step, extent in zip(self.inner, self.reduced, strict=True) if extent != 1]
        inner = 1
        for step, extent in zip(reversed(self.steps), reversed(self.results), strict=True):
            if extent != 1:
                steps += [step] if step != inner else []
                inner = step * extent
        return any(step * self.item_bytes % SECTOR_BYTES for step in steps)

    def at(self, results: Sequence[Expr], reduced: Sequence[Expr]) -> Expr:
        """Return the position that is read at these indices."""
        terms = zip((*self.steps, *self.inner), (*results, *reduced), strict=True)
        return sum((index * int64(step) for step, index in terms), int64(self.start))


def span(steps: Sequence[int], extents: Sequence[int]) -> int:
    """Return how far the last element is behind the first, of axes with these steps."""
    return sum((extent - 1) * step for extent, step in zip(extents, steps, strict=True))


def reads_of(stage: Stage) -> dict[Var, set[AffineRead | None]]:
    """Return how a stage that reads memory alone reads each tensor, at all of its places: None is one that grows by no
    constants, or backwards, or is read at what is loaded."""
    found: dict[Var, set[AffineRead | None]] = {}
    for load in loads(stage.value):
        found.setdefault(load.source, set()).add(_affine_read(stage, load))
    return found


def _affine_read(stage: Stage, load: TensorLoad) -> AffineRead | None:
    if any(contains(index, (TensorLoad, lambda read: True)) for index in load.indices):
        return None
    axes = (*stage.spatial, *stage.reduce)
    analyzer = analyzer_over(axes)
    position = AffineIndex.of(flat_index(shape_of(load.source), list(load.indices), analyzer), axes, analyzer)
    if position is None or any(step < 0 for step in position.steps):
        return None
    extents, results = tuple(int(axis.extent) for axis in axes), len(stage.spatial)
    return AffineRead(
        load.source, position.start, steps=position.steps[:results], inner=position.steps[results:],
        results=extents[:results], reduced=extents[results:],
    )  # fmt: skip
