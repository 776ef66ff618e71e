"""Imports a model at sizes of its symbols, and finds for which of them it is one and the same."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import takewhile

import numpy as np
import tvm

from fusion.context import Context
from fusion.declined import Declined
from fusion.errors import FusionError, LimitError, ModelChangedError, ModelFileError, ResourceError
from fusion.extents import Sizes
from fusion.frontends.branched import join_branches
from fusion.frontends.imported import ImportedModel
from fusion.pipeline import prepare_graph
from fusion.symbolic.choose_probes import choose_probes
from fusion.symbolic.derive import Deduction, deduce, telling
from fusion.symbolic.fit import Fit, NotLinearError
from fusion.symbolic.found_model import FoundModel
from fusion.symbolic.imported_constants import ImportedConstants, constants_of, fails_always
from fusion.symbolic.narrow import Narrowing
from fusion.symbolic.open_dims import LARGEST, CallAtFault, OpenDims
from fusion.symbolic.outline import OpenOutline, OperatorLine, has_strides, outline
from fusion.symbolic.relate import find_relations, find_sum, said_relations
from fusion.symbolic.settle_weights import Constants
from fusion.symbolic.small_sizes import low_corners, small_sizes

Shapes = tuple[tuple[int, ...], ...]
Import = Callable[[Mapping[str, Sequence[int]]], ImportedModel]
_OF_PROCESS = (LimitError, ResourceError, ModelChangedError, ModelFileError)
_SEEN, _MOST_SEEN = 4, 12
"""Imports that tell which sizes follow from others: at first, and at most."""
_TELLS_FROM = 65
"""Sizes of images from which on imports made for something else tell it too: of smaller ones stems leave one row."""
_BEYOND = (13, 41, 67)
"""Sizes beyond the largest of bounds that tell whether a number goes on no further there: so many steps."""
_PROBED_FROM = (65, 131)
"""How large images are at least at which passes see a model: of a small one all pixels are among the best hundred."""
_SHOWN = 11
"""Sizes that a model must take together for its form to be made at such small ones, as a table ends soon."""
_CHECKED = (LARGEST, 2048, 1024, 512, 128, 32, 8)
"""Sizes at which constants are looked at where those of the largest are left to the run."""
_BOUNDED = (512, 1024, 2048)
"""Sizes of others, such as of one that counts positions in a table: the largest for which the model is the same."""


class TableEndedError(Declined):
    """Every run would read behind the end of a table."""


@dataclass
class SizesAsked:
    """What imports ask of sizes that those at bounds do not tell of sizes between them, as `ImportedModel` says it."""

    is_uneven: bool = False
    numbers: set[int] = field(default_factory=set)

    def note(self, imported: ImportedModel) -> None:
        """Add what an import asks."""
        self.is_uneven |= imported.is_uneven
        self.numbers |= imported.asked_for


@dataclass
class SizedImports:
    """Imports a model at sizes of its symbols, once at each.

    Attributes:
        first: The sizes of the first call, if they are known.
        modules: What was imported, by the shapes of the inputs.
        outlines: Of some of these, their operators.
        refused: Why it cannot be imported, by the shapes; without the frames of what failed, which hold its arrays.
        limits: What ended imports and says nothing of the model, but of this process and its memory.
        further_of_nothing: Operators whose result of no elements is, in the framework of the model, that of kernels.
        asked: What imports ask of sizes.
        begin: Told of each model that may be it, before bounds of that are known.
        is_linear: Whether it is not known yet that numbers follow from sizes otherwise than as multiples: then they do
            so where fewer of these are open, too.
    """

    read_shapes: Import
    dims: OpenDims
    first: Sizes | None = None
    modules: dict[Shapes, tvm.IRModule] = field(default_factory=dict)
    outlines: dict[Shapes, tuple[OperatorLine, ...]] = field(default_factory=dict)
    refused: dict[Shapes, Exception] = field(default_factory=dict)
    limits: list[FusionError] = field(default_factory=list)
    further_of_nothing: set[str] = field(default_factory=set)
    asked: SizesAsked = field(default_factory=SizesAsked)
    begin: Callable[[FoundModel], None] = lambda found: None
    is_linear: bool = True

    def read(self, sizes: Sizes) -> tvm.IRModule:
        """Return the model at `sizes`.

        Raises:
            Declined: A part of it is run by a library, for which there is no open form.
            FusionError: It cannot be imported at these.
        """
        shapes = self.dims.shapes(sizes)
        key = tuple(shapes.values())
        if key in self.refused:
            raise copy.copy(self.refused[key])
        if key not in self.modules:
            try:
                self.modules[key] = self._read(shapes)
            except _OF_PROCESS as error:
                self.limits.append(error)
                raise
            except (Declined, FusionError) as error:
                self.refused[key] = copy.copy(error)  # without its traceback and causes
                raise
        return self.modules[key]

    def _read(self, shapes: Mapping[str, Sequence[int]]) -> tvm.IRModule:
        imported = self.read_shapes(shapes)
        if imported.has_zero_means:
            self.further_of_nothing.add("mean")
        self.asked.note(imported)
        if imported.mod is None or imported.subgraphs:
            raise Declined("ONNX Runtime runs a part of it")
        if fails_always(imported.mod):
            raise TableEndedError("every run of it fails: a table ends before these sizes")
        return join_branches(imported.mod, imported.branches)

    def find(self) -> FoundModel:
        """Return what the model is for all sizes, or else for those it takes beside the ones of the first call.

        Raises:
            Declined: It is another one at some, for this reason.
            CallAtFault: It cannot be imported at those of the first call either.
            FusionError: It cannot be imported at the sizes that passes may see.
        """
        said = None if self.dims.following else said_relations(self.dims, self.first)
        if said is not None:
            with suppress(Declined, FusionError):
                return self._related(said).find()
        first = self.first if self.first is not None and all(self.first.values()) else None
        narrowed = iter(()) if first is None else self._narrowed(first)
        if first is not None and self._is_divided(next(iter(self._near_following()), first)):
            self.is_linear = False
            if (found := next(narrowed, None)) is not None:
                return found
        try:
            found = self._find()
            return found if self._takes_first(found) else self._with_a_sum() or found
        except (Declined, FusionError):
            if (shown := self._shown()) is not None:
                with suppress(Declined, FusionError):
                    return replace(self, dims=shown)._find()
            if self.first is not None and not self.limits:
                related = find_relations(lambda d: self._related(d)._takes(d.spread(0)), self.dims, self.first)
                if related is not None:
                    return self._related(related).find()
            narrow = self._with_a_sum() or next(filter(None, narrowed), None)
            if narrow is None:
                raise
            return narrow

    def _takes_first(self, found: FoundModel) -> bool:
        """Return whether the model is `found` at the sizes of the first call too, as far as imports have shown others
        of which it is none."""
        if self.first is None or not self.refused or found.is_between(self.first):
            return True
        return self.is_same(found.dims.all_sizes(self.first), found.graph)

    def _with_a_sum(self) -> FoundModel | None:
        """Return the model for sizes of which one is a sum of others, as in the first call, if it refuses some that are
        not: a cache grows by the new tokens, or has places for more of them."""
        if self.first is not None and self.refused and not self.limits:
            related = find_sum(lambda dims: self._related(dims)._takes(dims.spread(0)), self.dims, self.first)
            with suppress(Declined, FusionError):
                return None if related is None else self._related(related).find()
        return None

    def _related(self, dims: OpenDims) -> SizedImports:
        """Return the same for `dims`, in which sizes follow from others."""
        first = None if self.first is None else {symbol: self.first[symbol] for symbol in dims.symbols}
        return replace(self, dims=dims, first=first)

    def _shown(self) -> OpenDims | None:
        """Return the dimensions with the largest size up to which the model takes any of those that are the first of no
        input together, where a table ends before sizes that would tell what it is; None if none does."""
        spread = map(self.dims.spread, range(_MOST_SEEN))
        refused = next((sizes for sizes in spread if tuple(self.dims.shapes(sizes).values()) in self.refused), {})
        inner = [symbol for symbol in refused if symbol not in self.dims.leading]
        if self.dims.steps or not inner:
            return None

        def is_taken(size: int) -> bool:
            return self._takes({**refused, **dict.fromkeys(inner, size)})

        tried = range(_SHOWN, max(refused[symbol] for symbol in inner) + 1)
        if not is_taken(tried[0]) or is_taken(tried[-1]):
            return None
        return replace(self.dims, shown=_last(is_taken, tried))

    def _is_divided(self, sizes: Sizes) -> bool:
        """Return whether the model, where it takes `sizes`, has windows with a stride over sizes that are open: these
        are divided, and it seldom takes all."""
        if not any(isinstance(dim, str) for dims in self.dims.dims if len(dims) > 2 for dim in dims[1:]):
            return False
        with suppress(Declined, FusionError):
            return has_strides(self.read(sizes))
        return False

    def _narrowed(self, sizes: Sizes) -> Iterator[FoundModel | None]:
        """Yield what the model is for those sizes that it takes beside `sizes`, as imports tell them, then as its
        operators do too; None where these are no others, or it is no one model for them.

        Raises:
            CallAtFault: It does not take `sizes`.
        """
        try:
            self.read(sizes)
        except Declined:
            return
        except FusionError as error:
            raise CallAtFault(error.what) from error
        narrowing, dims = Narrowing(self._outline, sizes), self.dims
        for narrow in (narrowing.by_import, narrowing.by_outline):
            narrowed, found = narrow(dims), None
            if narrowed != dims and narrowed.symbols:
                with suppress(Declined, FusionError):
                    found = replace(replace(self, dims=narrowed)._find(), reason=narrowing.describe(narrowed))
                dims = narrowed
            yield found

    def _outline(self, sizes: Sizes) -> tuple[OperatorLine, ...]:
        """Return the operators of the model at `sizes`; see `read`."""
        key = tuple(self.dims.shapes(sizes).values())
        if key not in self.outlines:
            self.outlines[key] = outline(self.read(sizes))
        return self.outlines[key]

    def _find(self) -> FoundModel:
        """Return what the model is for all sizes that its symbols take.

        Raises:
            Declined: It is another one at some, for this reason.
            FusionError: It cannot be imported at the sizes that passes may see.
        """
        choices = list(self.dims.probes())
        if not choices:
            raise Declined(f"it leaves {len(self.dims.symbols)} sizes open that have nothing to do with each other")
        if self.dims.steps or self.dims.following:
            return self._found_deduced(choices[0], self._deduce_with(self._near_following()))
        if not self.is_linear:
            with suppress(Declined, FusionError):
                return self._found_deduced(choices[0], self._deduce())
        for near in choices[:-1]:
            try:
                return self._taking_first(self._going_on(self._found(near), near), near)
            except NotLinearError as reason:
                self.is_linear = False
                return self._found_derived(near, reason, near)
            except (Declined, FusionError):
                continue
        try:
            return self._found(choices[-1])
        except (Declined, FusionError) as reason:
            return self._found_derived(choices[0], reason, ())

    def _found(self, near: tuple[Sizes, Sizes]) -> FoundModel:
        """Return the model if all its numbers are extents of the open sizes."""
        graph = OpenOutline.of([self._outline(sizes) for sizes in near], Fit(near))
        return self._bounded(self.dims, near, graph)

    def _going_on(self, found: FoundModel, near: tuple[Sizes, Sizes]) -> FoundModel:
        """Return `found`, or one for more sizes, if it takes others than its bounds say and a number is another one
        there: a detector keeps all of a few boxes, and the best 100 of many."""
        seen = list(near)
        for symbol, taken in found.bounds.items():
            every = self.dims.taken(symbol)
            above = [taken[-1] + steps * every.step for steps in _BEYOND]
            below = [taken[0] - every.step, self.dims.at_most(symbol, taken[0] // 2)]
            for others in (above, below):
                beyond = [{**near[place % 2], symbol: size} for place, size in enumerate(others)]
                if all(sizes[symbol] in every and self._takes(sizes) for sizes in beyond):
                    seen += beyond
        if len(seen) > len(near):
            with suppress(Declined, FusionError):
                deduction = self._deduce(seen)
                if any(size.most for size in deduction.derived):
                    return self._found_deduced(near, deduction)
        return found

    def _takes(self, sizes: Sizes) -> bool:
        """Return whether the model can be imported at `sizes`."""
        with suppress(Declined, FusionError):
            self.read(sizes)
            return True
        return False

    def _taking_first(self, found: FoundModel, near: tuple[Sizes, Sizes]) -> FoundModel:
        """Return `found`, or one for larger sizes if the first call is beyond its bounds and there sizes follow from
        others, as there is one frame of a short recording and many of a long one."""
        first = self.first or {}
        if all(first.get(symbol, 0) <= taken[-1] for symbol, taken in found.bounds.items()):
            return found
        self.is_linear = False
        with suppress(Declined, FusionError):
            return self._found_deduced(near, self._deduce())
        return found

    def _found_derived(self, small: Sequence[Sizes], reason: Exception, seen: Sequence[Sizes]) -> FoundModel:
        """Return the model with sizes that follow from others, which was imported at those `seen`; it has `reason` to
        have no form without. Where that is an error of the smallest sizes, at which pictures have no place for a
        window, larger ones tell the reason."""
        try:
            deduction = self._deduce_with(seen)
        except (Declined, FusionError) as of_larger:
            raise (of_larger if isinstance(reason, FusionError) else reason) from None
        if not deduction.derived:
            raise reason
        return self._found_deduced(small, deduction)

    def _found_deduced(self, small: Sequence[Sizes], deduction: Deduction) -> FoundModel:
        dims = replace(self.dims, derived=deduction.derived)
        for smallest in _PROBED_FROM:
            near = choose_probes(dims, small, deduction.graph.fixed, smallest)
            if all(self.is_same(dims.all_sizes(sizes), deduction.graph) for sizes in near):
                return self._bounded(dims, near, deduction.graph)
        raise Declined("sizes in it that follow from others do so otherwise elsewhere")

    def _deduce_with(self, seen: Sequence[Sizes]) -> Deduction:
        """Return what follows from the numbers of the model at the sizes `seen`, at which it is imported for something
        else too, and others. Small ones may mislead about what is left of a division: that is asked elsewhere."""
        if seen:
            with suppress(Declined, FusionError):
                deduction = self._deduce(seen)
                if all(size.divisor == 1 for size in deduction.derived):
                    return deduction
        return self._deduce()

    def _deduce(self, seen: Sequence[Sizes] = ()) -> Deduction:
        """Return what follows from the numbers of the model at as many sizes as tell all of it, `seen` among them."""
        seen = [*seen] or self._known()
        if not seen and self.first is not None and self.dims.largest > LARGEST:
            seen = [self.first]
        seen += [self._fitting(self.dims.spread(place)) for place in range(len(seen), max(_SEEN, len(seen) + 1))]
        while True:
            try:
                deduction = deduce([self._outline(sizes) for sizes in seen], seen, self.dims.following)
                sizes = telling(deduction, self.dims, self.dims.spread(len(seen)))
            except NotLinearError:
                sizes = self.dims.spread(len(seen))
                if len(seen) >= _MOST_SEEN:
                    raise
            if sizes is None or len(seen) >= _MOST_SEEN:
                return deduction
            seen.append(self._fitting(sizes))

    def _fitting(self, sizes: Sizes) -> Sizes:
        """Return these sizes, or smaller ones at which tensors fit the memory: each pixel may attend to all others.

        Raises:
            Declined, FusionError: The model cannot be imported there.
        """
        while True:
            limits = len(self.limits)
            try:
                self._outline(sizes)
            except LimitError:
                smaller = self.dims.halved(sizes)
                if smaller == sizes:
                    raise
                del self.limits[limits:]
                sizes = smaller
            else:
                return sizes

    def _known(self) -> list[Sizes]:
        """Return the sizes of the first call, and for each symbol some at which that alone is another one, if the model
        was imported at all of them already; else nothing."""
        first, symbols = self.first or {}, self.dims.symbols
        inner = [symbol for symbol in symbols if symbol not in self.dims.leading]
        if self.dims.steps or any(first.get(symbol, 0) < _TELLS_FROM for symbol in inner):
            return []
        moved = dict[tuple[str, ...], Sizes]()
        for sizes in filter(None, map(self.dims.sizes, self.modules)):
            others = tuple(symbol for symbol in symbols if sizes[symbol] != first[symbol])
            if len(others) < 2 and all(sizes[symbol] >= _TELLS_FROM for symbol in inner):
                moved.setdefault(others, sizes)
        return list(moved.values()) if len(moved) == len(symbols) + 1 else []

    def _near_following(self) -> list[Sizes]:
        """Return the sizes at which passes see the model if nothing but sizes of inputs follows from others."""
        small = next(self.dims.probes(), None)
        if small is None or self.dims.steps or not self.dims.following:
            return []
        with suppress(Declined):
            near = choose_probes(replace(self.dims, derived=self.dims.following), small, fixed=())
            return [{symbol: sizes[symbol] for symbol in self.dims.symbols} for sizes in near]
        return []

    def _bounded(self, dims: OpenDims, near: tuple[Sizes, Sizes], graph: OpenOutline) -> FoundModel:
        """Return the model that has `graph` at the sizes `near`, with its bounds.

        Raises:
            NotLinearError: It is another one where one symbol alone is larger: a sum of two sizes, or what is left of a
                division.
        """
        constants = ImportedConstants.of([self.read(sizes) for sizes in near], Fit(near, graph.extents))
        found = FoundModel(dims, near, graph, constants, beside=near[0], lowest=near[0])
        if not (dims.derived or self.is_same(next(low_corners(dims)), graph)):
            one, other = near
            mixed = {symbol: (one if symbol in dims.leading else other)[symbol] for symbol in dims.symbols}
            if not self.is_same(mixed, graph):
                raise NotLinearError("a size in it is no product of open sizes")
        self.begin(found)
        lowest = self._lowest(found)
        if lowest is None:
            smallest = {symbol: self._smallest(symbol, found) for symbol in dims.symbols}
        else:  # beside the smallest, what is added up ends elsewhere
            smallest = {symbol: lowest[symbol] for symbol in dims.symbols}
            adds_up = any(len(size.parts) > 1 for size in dims.derived)
            found = replace(found, beside=near[0] if adds_up else smallest, lowest=smallest)
        largest = {symbol: self._largest(symbol, found) for symbol in dims.symbols}
        bounds = {name: range(smallest[name], largest[name] + 1, dims.taken(name).step) for name in dims.symbols}
        limited = dims.limited(bounds)
        for name in (name for name, sizes in limited.items() if not sizes):
            raise Declined(f"its form takes no {name} below {smallest[name]}, which bounds= asks for")
        return replace(found, bounds=limited)

    def _lowest(self, found: FoundModel) -> Sizes | None:
        """Return the first of the lowest corners at which the model is the same; None if there is none. As in
        `_smallest`, the first of all is asked for after the second."""
        first, *others = low_corners(found.dims)
        if others and not self._is_whole_same(others[0], found):
            return next((each for each in others[1:] if self._is_whole_same(each, found)), None)
        return first if self._is_whole_same(first, found) else next(iter(others), None)

    def _smallest(self, symbol: str, found: FoundModel) -> int:
        """Return the first of a few sizes of `symbol` at which the model is the same, or the one that passes see.

        The first of all is asked for after the second where images may be too small: what is not the same at that is
        not at the first. Constants have to go on there as they begin, too: a picture of two columns goes on beyond its
        edges otherwise than a larger one. Where no sizes follow from others, the first is looked for among all: the
        third row from the last is none of two.
        """

        def is_same(size: int) -> bool:
            return self._is_whole_same(found.with_size(symbol, size), found)

        dims, near = found.dims, found.near[0][symbol]
        taken = dims.taken(symbol)
        sizes = small_sizes(symbol, dims)
        sizes += [self.first[symbol]] if self.first is not None and self.first[symbol] < near else []
        first, second, *others = sizes
        if symbol in found.dims.leading:
            return next(filter(is_same, sizes), found.near[0][symbol])
        if is_same(second):
            return first if is_same(first) else second
        if not dims.derived and second < near:
            return _last(is_same, range(near, second - taken.step, -taken.step))
        return next(filter(is_same, others), near)

    def _largest(self, symbol: str, found: FoundModel) -> int:
        """Return the largest size of `symbol` at which operators and constants are known to be the same.

        Imports leave constants to the run that would be too large: no table of them may have to be larger, and a
        smaller size tells how they go on.
        """
        highest, seen = self._largest_graph(symbol, found), found.near[1][symbol]
        left, smaller = 0, dict.fromkeys(found.dims.at_most(symbol, size) for size in _CHECKED)
        for size in (highest, *(size for size in smaller if seen < size < highest)):
            sizes = found.with_size(symbol, size)
            if found.graph.leaves(self._outline(sizes)):
                if size == highest and self._goes_on_beside_lowest(symbol, size, found):
                    return size
                left = max(left, 0 if found.constants.grow_with(symbol) else size)
            elif found.constants.can_be(self.read(sizes), sizes):
                return max(left, size)
            else:
                left = 0
        return seen

    def _goes_on_beside_lowest(self, symbol: str, size: int, found: FoundModel) -> bool:
        """Return whether constants without a table that `symbol` ends go on there, where the others are so small that
        no import leaves them to the run."""
        sizes = found.dims.all_sizes({**found.lowest, symbol: size})
        return (
            found.lowest != found.beside
            and not found.constants.grow_with(symbol)
            and self._is_whole_same(sizes, found)
        )

    def _largest_graph(self, symbol: str, found: FoundModel) -> int:
        def is_same(size: int) -> bool:
            return self.is_same(found.with_size(symbol, size), found.graph)

        dims, taken = found.dims, found.dims.taken(symbol)
        limits = len(self.limits)
        limit = dims.limits.get(symbol, taken)[-1]
        last = dims.at_most(symbol, max(limit, found.near[1][symbol]))
        for size in dict.fromkeys((last, dims.at_most(symbol, min(LARGEST, last)))):
            if is_same(size):
                return size
        sizes = [dims.at_most(symbol, size) for size in _BOUNDED]
        same = [*takewhile(is_same, sizes)]
        if not same and not is_same(found.near[0][symbol] + taken.step):
            raise NotLinearError(f"a size in it is no product of open sizes where {symbol} alone is another")
        seen = max(near[symbol] for near in found.near)
        if not same:
            return _last(is_same, range(seen, sizes[0] + 1, taken.step)) if seen < sizes[0] else seen
        further = range(same[-1], (*sizes, taken[-1])[len(same)] + 1, taken.step)
        ends_there = len(further) < 3 or len(self.limits) > limits or not is_same(further[1])
        return max(seen, further[0] if ends_there else _last(is_same, further))

    def is_same(self, sizes: Sizes, graph: OpenOutline) -> bool:
        """Return whether the operators at all `sizes`, those that follow from others too, are those of `graph`."""
        try:
            return graph.is_at(self._outline(sizes), sizes)
        except (Declined, FusionError):
            return False

    def _is_whole_same(self, sizes: Sizes, found: FoundModel) -> bool:
        """Return whether operators and constants of an import at all `sizes` are those of `found`."""
        return self.is_same(sizes, found.graph) and found.constants.can_be(self.read(sizes), sizes)

    def goes_on(self, sizes: Sizes, found: FoundModel) -> bool:
        """Return whether operators and constants at `sizes` of the inputs are those of `found`; of constants that an
        import leaves to the run it does not tell, nor of sizes behind the end of a table, which each call is asked for.

        Raises:
            LimitError: The model does not fit the memory there.
        """
        everything = found.dims.all_sizes(sizes)
        try:
            lines = self._outline(sizes)
        except LimitError:
            raise
        except TableEndedError:
            return True
        except (Declined, FusionError):
            return False
        return found.graph.is_at(lines, everything) and (
            found.graph.leaves(lines) or found.constants.can_be(self.read(sizes), everything)
        )

    def stages(self, found: FoundModel, ctx: Context, lying: Mapping[str, bool]) -> tuple[Constants, ...]:
        """Return what tells the constants of the model at sizes of the inputs: as it was imported, and as passes
        prepare it, which takes longer; `lying` is as in `prepare_graph`."""

        @cache
        def at(sizes: tuple[int, ...], is_prepared: bool) -> list[np.ndarray] | None:
            known = dict(zip(self.dims.symbols, sizes, strict=True))
            if not self.is_same(found.dims.all_sizes(known), found.graph):
                return None
            mod = self.read(known)
            return constants_of(prepare_graph(mod, ctx, lying) if is_prepared else mod)

        def of(is_prepared: bool) -> Constants:
            return lambda sizes: at(tuple(sizes[symbol] for symbol in self.dims.symbols), is_prepared)

        return of(False), of(True)


def _last(is_same: Callable[[int], bool], sizes: range) -> int:
    """Return the last of `sizes` at which a model is the same as it is at those before: a table of 77 positions ends
    there."""
    known, other = 0, len(sizes) - 1
    while other - known > 1:
        between = (known + other) // 2
        known, other = (between, other) if is_same(sizes[between]) else (known, between)
    return sizes[known]
