"""Which parts of concatenations their kernels write in place, by the bytes that this saves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tvm import relax, tirx
from tvm.s_tir.stmt import SBlock

from backends.memory_costs import MemoryCosts
from fusion.passes.concats.read import Graph, Part, Result, row_bytes
from fusion.passes.rebuild import static_shape
from fusion.structural import find
from partition.access import ANCHOR
from partition.slices import Region, hide_outputs, read_slice, write_slice

Decline = Callable[[tirx.PrimFunc], str]
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
        region: Where it lies.
        views: Variables of the reshapes of it that the concatenation reads.
    """

    concat: relax.Var
    root: relax.Var
    part: tuple[int, ...]
    region: Region
    views: tuple[relax.Var, ...] = ()


@dataclass
class Plan:
    """What is written where.

    Attributes:
        joined: Concatenations without a kernel.
        writes: The places that a kernel writes a result of its to.
        homes: Results that have no memory of their own, and the place where others read them.
        copies: What each concatenation still copies.
        reasons: Why an operand of a concatenation is still read or copied.
        saved: Bytes that a kernel saves by writing in place.
    """

    joined: set[relax.Var] = field(default_factory=set)
    writes: dict[Result, list[Place]] = field(default_factory=lambda: defaultdict(list))
    homes: dict[Result, Place] = field(default_factory=dict)
    copies: dict[relax.Var, list[tuple[relax.Expr, Place]]] = field(default_factory=dict)
    reasons: dict[tuple[relax.Var, relax.Expr], str] = field(default_factory=dict)
    saved: dict[relax.Var, int] = field(default_factory=lambda: defaultdict(int))


@dataclass(frozen=True)
class _Chosen:
    """A part that its kernel may write in place, and whether it is written nowhere else then."""

    part: Part
    result: Result
    place: Place
    alone: bool


@dataclass
class Planner:
    """Decides concatenation by concatenation, the last first: one whose result is a part of a later one may be a slice
    of the joined tensor of that."""

    graph: Graph
    decline: Decline
    costs: MemoryCosts
    plan: Plan = field(default_factory=Plan)

    def run(self) -> Plan:
        """Return the plan."""
        for concat in reversed(self.graph.operands):
            home = self.plan.homes.get(Result(concat, 0))
            if home is not None and home.views:
                self._keep(concat, "its kernel writes into another concatenation")
                continue
            shape = static_shape(concat)
            self._consider(concat, home or Place(concat, concat, shape, Region(shape, (0,) * len(shape))))
        return self.plan

    def _keep(self, concat: relax.Var, reason: str) -> None:
        for operand in self.graph.operands[concat]:
            self.plan.reasons.setdefault((concat, operand), reason)

    def _consider(self, concat: relax.Var, outer: Place) -> None:
        """Decide about `concat`, whose result lies at `outer`."""
        axis = self.graph.concat_axis(concat)
        assert axis is not None
        chosen: list[_Chosen] = []
        copies: list[tuple[Part, Place]] = []
        offset = 0
        for operand in self.graph.operands[concat]:
            part = self.graph.part(operand)
            begin = tuple(offset if at == axis else 0 for at in range(len(part.shape)))
            region = Region(outer.part, begin).inside(outer.region)
            place = Place(concat, outer.root, part.shape, region, part.views)
            taken = self._choose(part, place, [other.result for other in chosen])
            if isinstance(taken, _Chosen):
                chosen.append(taken)
            else:
                self.plan.reasons[concat, operand] = taken
                copies.append((part, place))
            offset += part.shape[axis]
        if self._pays(chosen, copies):
            self._accept(concat, chosen, copies)
        else:
            self._keep(concat, "copying the other parts costs as much")

    def _accept(self, concat: relax.Var, chosen: Sequence[_Chosen], copies: Sequence[tuple[Part, Place]]) -> None:
        plan = self.plan
        plan.joined.add(concat)
        plan.writes.pop(Result(concat, 0), None)
        plan.copies[concat] = [(part.value, place) for part, place in copies]
        for each in chosen:
            plan.writes[each.result].append(each.place)
            plan.saved[each.result.call] += each.part.bytes * (1 + each.alone)
            if each.alone:
                plan.homes.setdefault(each.result, each.place)

    def _choose(self, part: Part, place: Place, taken: Sequence[Result]) -> _Chosen | str:
        """Return how the kernel that makes `part` writes it to `place`, or why it does not."""
        result = part.result
        if result is None:
            return "no kernel makes it"
        names = self.graph.names(result)
        if not names:
            return "its kernel's results are used as a whole"
        if result.call in [other.call for other in taken]:
            return "its kernel makes another part" if result not in taken else "it is joined twice"
        places = self.plan.writes.get(result, [])
        if any(other.root.same_as(place.root) for other in self._written_by(result.call)):
            return "its kernel writes another part"
        is_concat = result.call in self.graph.operands
        if len(places) >= (1 if is_concat else _PLACES):
            return "it is written into other concatenations"
        others = [] if result in self.plan.homes else list(self._others(result, names, place))
        alone = all(self._reads_slice(name, reader, place) for name, reader in others)
        if is_concat and not alone:
            return "its result is used elsewhere"
        reason = self._decline_write(result, place, alone)
        return reason or _Chosen(part, result, place, alone)

    def _written_by(self, call: relax.Var) -> list[Place]:
        return [place for result, places in self.plan.writes.items() if result.call.same_as(call) for place in places]

    def _others(
        self, result: Result, names: Sequence[relax.Var], place: Place
    ) -> Iterator[tuple[relax.Var, relax.Var | None]]:
        """Yield (variable, what reads it, None for the caller) of what reads `result` elsewhere than from places."""
        for name in (*names, *place.views):
            if name in self.graph.returned:
                yield name, None
            for reader in self.graph.readers[name]:
                if reader not in place.views and not self._reads_place(result, name, reader, place):
                    yield name, reader

    def _reads_place(self, result: Result, name: relax.Var, reader: relax.Var, place: Place) -> bool:
        """Return whether `reader` is a concatenation that `result` is written into by its kernel."""
        if reader.same_as(place.concat):
            # of a reshaped part that is joined twice, the second is a copy of the reshaped result
            return not place.views or sum(operand.same_as(name) for operand in self.graph.operands[reader]) < 2
        if reader not in self.plan.joined:
            return False
        if any(other.concat.same_as(reader) for other in self.plan.writes[result]):
            return True
        return not any(operand.same_as(name) for operand in self.graph.operands[reader])

    def _reads_slice(self, name: relax.Var, reader: relax.Var | None, place: Place) -> bool:
        """Return whether `reader` can take `name` from where it lies in a joined tensor."""
        if reader is None or place.views:
            return False
        if reader in self.plan.joined:
            return True  # it copies this part
        func = self.graph.kernel(reader)
        if func is None or row_bytes(place.part, place.region.shape, str(name.ty.dtype.dtype)) < self.costs.run:
            return False
        anchors = _anchors(func)
        for position, argument in enumerate(self.graph.arguments(reader)):
            if not argument.same_as(name):
                continue
            param = func.params[position]
            if any(region.source.same_as(param) for anchor in anchors for region in anchor.reads):
                return False
            func = read_slice(func, position, place.region)
        return len(anchors) <= 1 and not self.decline(func)

    def _decline_write(self, result: Result, place: Place, alone: bool) -> str:
        """Return why the kernel that makes `result` cannot write it to `place`."""
        func = self.graph.kernel(result.call)
        assert func is not None
        buffer = self.graph.buffer(result)
        row = row_bytes(place.part, place.region.shape, str(buffer.ty.dtype.dtype))
        if row < (self.costs.anchored_run if _anchors(func) else self.costs.run):
            return f"its rows in the joined tensor have {row} bytes"
        func = write_slice(func, buffer, place.part, place.region)
        return self.decline(hide_outputs(func, [buffer]) if alone else func)

    def _pays(self, chosen: Sequence[_Chosen], copies: Sequence[tuple[Part, Place]]) -> bool:
        """Return whether what is still written twice or copied is less than what one kernel for all reads and
        writes."""
        size = sum(each.part.bytes for each in chosen) + sum(part.bytes for part, _ in copies)
        twice = sum(each.part.bytes for each in chosen if not each.alone)
        copied = sum(self.costs.call + 2 * part.bytes for part, _ in copies)
        return bool(chosen) and twice + copied < self.costs.call + 2 * size


def _anchors(func: tirx.PrimFunc) -> list[SBlock]:
    return [block for block in find(func.body, SBlock) if ANCHOR in block.annotations]
