"""What an elementwise region reads of a tensor: a box of its outputs, whose neighbours may lie anywhere.

Slices read a part of a tensor, paddings and concatenations put a tensor into a part of the outputs: each index of the
outputs from `begin` to `end` reads one element, and later ones read later elements.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod

from tvm import tirx
from tvm.ir import Call, TensorLoad, Var
from tvm.sym import Analyzer
from tvm_ffi.structural import StructuralMutator

from backends.cuda.kernels.affine import AffineIndex, analyzer_over
from backends.cuda.kernels.inlined import plain_load
from backends.cuda.kernels.pointwise.read import ElementwiseRegion
from backends.tensorir.accesses import flat_index
from backends.tensorir.emit import Expr, int64
from backends.tensorir.inlining import Resolver, is_branch
from backends.tensorir.stages import Axis, shape_of
from fusion.structural import contains, mutate


@dataclass(frozen=True)
class Box:
    """One read of a tensor: the element `start + sum(steps * index)`, by its row-major position.

    Attributes:
        extents: Of the outputs' axes.
        steps: Of each axis.
        begin: The first index of each axis at which it is read; `end` is the one behind the last.
    """

    extents: tuple[int, ...]
    steps: tuple[int, ...]
    start: int
    begin: tuple[int, ...]
    end: tuple[int, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of the box along each axis."""
        return tuple(end - begin for begin, end in zip(self.begin, self.end, strict=True))

    def span(self, axis: int) -> int:
        """Return how many elements of memory what is read lies in, of one index of the axes before this one."""
        return 1 + sum((size - 1) * step for size, step in zip(self.sizes[axis:], self.steps[axis:], strict=True))

    @property
    def is_ordered(self) -> bool:
        """Whether later indices read later elements, neighbours of the innermost axis neighbours in memory."""
        places = [place for place, size in enumerate(self.sizes) if size > 1]
        if not places or self.steps[places[-1]] != 1:
            return False
        return all(self.steps[place] >= self.span(place + 1) for place in places)

    def is_inside(self, elements: int) -> bool:
        """Return whether all of it is inside of a tensor of so many elements."""
        if min(self.sizes, default=1) <= 0:
            return False
        first = self.start + sum(map(int.__mul__, self.steps, self.begin))
        return first >= 0 and first + self.span(0) <= elements

    def is_aligned(self, many: int) -> bool:
        """Return whether runs of the innermost axis begin and end at multiples of so many elements, in the tensor and
        in the outputs."""
        inner = max(place for place, size in enumerate(self.sizes) if size > 1)
        held = (step for place, step in enumerate(self.steps) if place != inner and self.sizes[place] > 1)
        ends = (self.begin[inner], self.end[inner], prod(self.extents[inner:]))
        fixed = self.start + sum(step * at for step, at in zip(self.steps, self.begin, strict=True))
        return all(each % many == 0 for each in (*held, *ends, fixed))

    def first_from(self, indices: Sequence[Expr]) -> Expr:
        """Return where the first element lies that is read at these indices of the axes, or later ones: not behind it,
        and exactly there if the box is a run of memory."""
        return self._clamped(indices, before=0, later=self.begin)

    def last_to(self, indices: Sequence[Expr]) -> Expr:
        """Return where the last element lies that is read at these indices or earlier ones, as `first_from` does."""
        return self._clamped(indices, before=1, later=tuple(end - 1 for end in self.end))

    def _clamped(self, indices: Sequence[Expr], *, before: int, later: Sequence[int]) -> Expr:
        at, is_inside = int64(self.start), None
        for place, index in enumerate(indices):
            begin, end, extent = self.begin[place], self.end[place], self.extents[place]
            taken = tirx.max(index, int64(begin - before)) if begin else index
            taken = tirx.min(taken, int64(end - before)) if end < extent else taken
            taken = taken if is_inside is None else tirx.Select(is_inside, taken, int64(later[place]))
            at = at + taken * self.steps[place]
            conditions = [index >= begin] if begin else []
            conditions += [index < end] if end < extent else []
            if conditions:
                is_inside = tirx.all(*conditions) if is_inside is None else tirx.all(is_inside, *conditions)
        return at


def boxes_of(region: ElementwiseRegion) -> dict[Var, Box]:
    """Return what a region reads of each tensor that it reads at one place, as a box."""
    found = _Found(region.axes, analyzer_over(region.axes))
    resolver = Resolver(region.stages, plain_load, found.analyzer)
    values = [resolver.resolve(stage.value, {}) for stage in region.outputs]
    for value in (*(bound for _, bound in resolver.bindings), *values):
        found.read(value, ())
    return {buffer: box for buffer, box in found.boxes.items() if box is not None}


@dataclass
class _Found:
    """The boxes of what was read so far; None of what is read at several places, or is no box."""

    axes: tuple[Axis, ...]
    analyzer: Analyzer
    boxes: dict[Var, Box | None] = field(default_factory=dict)

    def read(self, value: Expr, known: tuple[Expr, ...]) -> None:
        """Add what an expression reads that is only evaluated where these conditions hold."""
        mutate(value, [(TensorLoad, partial(self._load, known)), (Call, partial(self._call, known))])

    def _call(self, known: tuple[Expr, ...], call: Call, mutator: StructuralMutator) -> Expr:
        if not is_branch(call):
            return mutator.default_mutate(call)
        condition, then, otherwise = call.args
        self.read(condition, known)
        self.read(then, (*known, *_conjuncts(condition)))
        self.read(otherwise, (*known, *_negated(condition)))
        return call

    def _load(self, known: tuple[Expr, ...], load: TensorLoad, mutator: StructuralMutator) -> Expr:
        for index in load.indices:
            self.read(index, known)
        box = self._box(load, known)
        self.boxes[load.source] = box if self.boxes.get(load.source, box) == box else None
        return load

    def _box(self, load: TensorLoad, known: tuple[Expr, ...]) -> Box | None:
        if not load.indices or any(contains(index, (TensorLoad, lambda read: True)) for index in load.indices):
            return None
        position = flat_index(shape_of(load.source), list(load.indices), self.analyzer)
        found = AffineIndex.of(position, self.axes, self.analyzer)
        if found is None:
            return None
        extents = tuple(int(axis.extent) for axis in self.axes)
        begin, end = [0 for _ in extents], list(extents)
        for condition in known:
            for place, low, high in self._bounds(condition):
                begin[place], end[place] = max(begin[place], low), min(end[place], high)
        box = Box(extents, found.steps, found.start, tuple(begin), tuple(end))
        return box if box.is_inside(prod(shape_of(load.source))) else None

    def _bounds(self, condition: Expr) -> Iterator[tuple[int, int, int]]:
        """Yield the axis, and the indices of it, that a comparison leaves; nothing where it is about none alone."""
        left, right = (condition.a, condition.b) if isinstance(condition, _COMPARISONS) else (None, None)
        if left is None or not str(left.ty.dtype).startswith("int"):
            return
        # It holds where `value` is at least 0.
        value = right - left if isinstance(condition, tirx.LE | tirx.LT) else left - right
        if isinstance(condition, tirx.LT | tirx.GT):
            value = value - 1
        found = AffineIndex.of(value, self.axes, self.analyzer)
        if found is None:
            return
        moving = [place for place, step in enumerate(found.steps) if step]
        if len(moving) == 1 and found.steps[moving[0]] in (1, -1):
            (place,) = moving
            extent = int(self.axes[place].extent)
            yield (place, -found.start, extent) if found.steps[place] == 1 else (place, 0, found.start + 1)


_COMPARISONS = (tirx.LE, tirx.LT, tirx.GE, tirx.GT)
_OPPOSITES = {tirx.LE: tirx.GT, tirx.LT: tirx.GE, tirx.GE: tirx.LT, tirx.GT: tirx.LE}


def _conjuncts(condition: Expr) -> Iterator[Expr]:
    if isinstance(condition, tirx.And):
        yield from _conjuncts(condition.a)
        yield from _conjuncts(condition.b)
    else:
        yield condition


def _negated(condition: Expr) -> Iterator[Expr]:
    """Yield what is known where a condition does not hold: of a comparison the opposite one, of others nothing."""
    if isinstance(condition, _COMPARISONS):
        yield _OPPOSITES[type(condition)](condition.a, condition.b)
