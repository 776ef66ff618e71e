"""Which parts of concatenations their kernels write in place, by the bytes that this saves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tvm import relax, tirx

from backends.memory_costs import MemoryCosts
from fusion.passes.concats.read import ConcatGraph, ConcatPart, Result, row_bytes
from fusion.shapes import static_shape
from partition.access import find_anchors
from partition.slices import Slice, hide_outputs, read_slice, write_slice

WhyNotTaken = Callable[[tirx.PrimFunc], str]
"""Says why no template takes a kernel; "" where one does."""

_PLACES = 2
"""Joined tensors that one result is written into."""


@dataclass(frozen=True)
class Place:
    """Where a part lies in a joined tensor.

    Attributes:
        concat: The concatenation that it is a part of.
        root: The variable of the joined tensor, another concatenation's where this one's result is a part itself.
        part: Its shape.
        slice_: Which slice of that tensor it is.
        views: Variables of the reshapes of it that the concatenation reads.
    """

    concat: relax.Var
    root: relax.Var
    part: tuple[int, ...]
    slice_: Slice
    views: tuple[relax.Var, ...] = ()


@dataclass(frozen=True)
class ConcatPlan:
    """What is written where.

    Attributes:
        joined: Concatenations without a kernel.
        writes: The places that a kernel writes a result of its to.
        homes: Results that have no memory of their own, and the place where others read them.
        copies: What each concatenation still copies.
        reasons: Why an operand of a concatenation is still read or copied.
        saved: Bytes that a kernel saves by writing in place.
    """

    joined: frozenset[relax.Var] = frozenset()
    writes: Mapping[Result, tuple[Place, ...]] = field(default_factory=dict)
    homes: Mapping[Result, Place] = field(default_factory=dict)
    copies: Mapping[relax.Var, tuple[tuple[relax.Expr, Place], ...]] = field(default_factory=dict)
    reasons: Mapping[tuple[relax.Var, relax.Expr], str] = field(default_factory=dict)
    saved: Mapping[relax.Var, int] = field(default_factory=dict)


@dataclass(frozen=True)
class _Chosen:
    """A part that its kernel may write in place, and whether it is written nowhere else then."""

    part: ConcatPart
    result: Result
    place: Place
    alone: bool


def make_plan(graph: ConcatGraph, why_not_taken: WhyNotTaken, costs: MemoryCosts) -> ConcatPlan:
    """Decide concatenation by concatenation, the last first: one whose result is a part of a later one may be a slice
    of the joined tensor of that."""
    plan = ConcatPlan()
    for concat in reversed(graph.operands):
        plan = _Decision(graph, why_not_taken, costs, concat, plan).make()
    return plan


@dataclass(frozen=True)
class _Decision:
    """What becomes of one concatenation, given the plan for the later ones."""

    graph: ConcatGraph
    why_not_taken: WhyNotTaken
    costs: MemoryCosts
    concat: relax.Var
    plan: ConcatPlan

    def make(self) -> ConcatPlan:
        """Return the plan with this concatenation."""
        home = self.plan.homes.get(Result(self.concat, 0))
        if home is not None and home.views:
            return self._kept("its kernel writes into another concatenation")
        shape = static_shape(self.concat)
        return self._consider(home or Place(self.concat, self.concat, shape, Slice(shape, (0,) * len(shape))))

    def _consider(self, outer: Place) -> ConcatPlan:
        """Decide when the result lies at `outer`."""
        chosen: list[_Chosen] = []
        copies: list[tuple[relax.Expr, Place]] = []
        reasons: dict[tuple[relax.Var, relax.Expr], str] = {}
        copied = 0
        for part, place in self._places(outer):
            taken = self._choose(part, place, [other.result for other in chosen])
            if isinstance(taken, _Chosen):
                chosen.append(taken)
            else:
                reasons[self.concat, part.value] = taken
                copies.append((part.value, place))
                copied += part.bytes
        decided = replace(self, plan=replace(self.plan, reasons={**self.plan.reasons, **reasons}))
        if self._pays(chosen, len(copies), copied):
            return decided._accepted(chosen, copies)
        return decided._kept("copying the other parts costs as much")

    def _places(self, outer: Place) -> Iterator[tuple[ConcatPart, Place]]:
        """Yield each part with its place in the joined tensor when the result lies at `outer`."""
        axis = self.graph.concat_axis(self.concat)
        assert axis is not None
        offset = 0
        for operand in self.graph.operands[self.concat]:
            part = self.graph.part(operand)
            begin = tuple(offset if at == axis else 0 for at in range(len(part.shape)))
            slice_ = Slice(outer.part, begin).inside(outer.slice_)
            yield part, Place(self.concat, outer.root, part.shape, slice_, part.views)
            offset += part.shape[axis]

    def _kept(self, reason: str) -> ConcatPlan:
        """Return the plan in which the concatenation keeps its kernel."""
        reasons = {(self.concat, operand): reason for operand in self.graph.operands[self.concat]}
        return replace(self.plan, reasons={**reasons, **self.plan.reasons})

    def _accepted(self, chosen: Sequence[_Chosen], copies: Sequence[tuple[relax.Expr, Place]]) -> ConcatPlan:
        """Return the plan in which it has none."""
        writes, homes, saved = dict(self.plan.writes), dict(self.plan.homes), dict(self.plan.saved)
        writes.pop(Result(self.concat, 0), None)
        for each in chosen:
            writes[each.result] = (*writes.get(each.result, ()), each.place)
            saved[each.result.call] = saved.get(each.result.call, 0) + each.part.bytes * (1 + each.alone)
            if each.alone:
                homes.setdefault(each.result, each.place)
        return replace(
            self.plan,
            joined=self.plan.joined | {self.concat},
            writes=writes,
            homes=homes,
            copies={**self.plan.copies, self.concat: tuple(copies)},
            saved=saved,
        )

    def _choose(self, part: ConcatPart, place: Place, taken: Sequence[Result]) -> _Chosen | str:
        """Return how the kernel that makes `part` writes it to `place`, or why it does not."""
        result = part.result
        if result is None:
            return "no kernel makes it"
        names = self.graph.names(result)
        if not names:
            return "its kernel's results are used as a whole"
        if result.call in [other.call for other in taken]:
            return "its kernel makes another part" if result not in taken else "it is joined twice"
        places = self.plan.writes.get(result, ())
        if any(other.root.same_as(place.root) for other in self._written_by(result.call)):
            return "its kernel writes another part"
        is_concat = result.call in self.graph.operands
        if len(places) >= (1 if is_concat else _PLACES):
            return "it is written into other concatenations"
        others = [] if result in self.plan.homes else list(self._others(result, names, place))
        alone = all(self._reads_slice(name, reader, place) for name, reader in others)
        if is_concat and not alone:
            return "its result is used elsewhere"
        reason = self._why_not_written(result, place, alone)
        return reason or _Chosen(part, result, place, alone)

    def _written_by(self, call: relax.Var) -> list[Place]:
        return [place for result in self.graph.results(call) for place in self.plan.writes.get(result, ())]

    def _others(
        self, result: Result, names: Sequence[relax.Var], place: Place
    ) -> Iterator[tuple[relax.Var, relax.Var | None]]:
        """Yield (variable, what reads it, None for the caller) of what reads `result` elsewhere than from places."""
        for name in (*names, *place.views):
            if name in self.graph.bindings.returned:
                yield name, None
            for reader in self.graph.readers(name):
                if reader not in place.views and not self._reads_place(result, name, reader, place):
                    yield name, reader

    def _reads_place(self, result: Result, name: relax.Var, reader: relax.Var, place: Place) -> bool:
        """Return whether `reader` is a concatenation that `result` is written into by its kernel."""
        if reader.same_as(place.concat):
            # of a reshaped part that is joined twice, the second is a copy of the reshaped result
            return not place.views or sum(operand.same_as(name) for operand in self.graph.operands[reader]) < 2
        if reader not in self.plan.joined:
            return False
        if any(other.concat.same_as(reader) for other in self.plan.writes.get(result, ())):
            return True
        return not any(operand.same_as(name) for operand in self.graph.operands[reader])

    def _reads_slice(self, name: relax.Var, reader: relax.Var | None, place: Place) -> bool:
        """Return whether `reader` can take `name` from where it lies in a joined tensor."""
        if reader is None or place.views:
            return False
        if reader in self.plan.joined:
            return True  # it copies this part
        func = self.graph.kernel(reader)
        if func is None or row_bytes(place.part, place.slice_.shape, str(name.ty.dtype.dtype)) < self.costs.run:
            return False
        anchors = find_anchors(func)
        for position, argument in enumerate(self.graph.arguments(reader)):
            if not argument.same_as(name):
                continue
            param = func.params[position]
            if any(region.source.same_as(param) for anchor in anchors for region in anchor.reads):
                return False
            func = read_slice(func, position, place.slice_)
        return len(anchors) <= 1 and not self.why_not_taken(func)

    def _why_not_written(self, result: Result, place: Place, alone: bool) -> str:
        """Return why the kernel that makes `result` cannot write it to `place`."""
        func = self.graph.kernel(result.call)
        assert func is not None
        buffer = self.graph.buffer(result)
        row = row_bytes(place.part, place.slice_.shape, str(buffer.ty.dtype.dtype))
        if row < (self.costs.anchored_run if find_anchors(func) else self.costs.run):
            return f"its rows in the joined tensor have {row} bytes"
        func = write_slice(func, buffer, place.part, place.slice_)
        return self.why_not_taken(hide_outputs(func, [buffer]) if alone else func)

    def _pays(self, chosen: Sequence[_Chosen], copies: int, copied: int) -> bool:
        """Return whether what is still written twice or copied, `copied` bytes by `copies` calls, is less than what one
        kernel for all reads and writes."""
        written, call = sum(each.part.bytes for each in chosen), self.costs.call
        twice = sum(each.part.bytes for each in chosen if not each.alone)
        return bool(chosen) and twice + copies * call + 2 * copied < call + 2 * (written + copied)
