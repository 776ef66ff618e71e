"""Lowers a model for all sizes of its open dimensions: at some sizes, and then what these forms have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType

import tvm
from tvm import tirx

from backends.tensorir.result import Kernel
from fusion.choose_layout import LayoutChoice
from fusion.context import Context
from fusion.declined import Declined
from fusion.errors import FusionError
from fusion.lowered_graphs import LoweredGraphs
from fusion.made_once import making_once
from fusion.pipeline import (
    NeedsSizes,
    OpenWork,
    begin_kernel,
    group_graphs,
    lower_graph,
    lower_like,
    lower_open,
    needs_sizes,
)
from fusion.signature import TensorSpec
from fusion.stages import stage
from fusion.symbolic.choose_probes import choose_further
from fusion.symbolic.cut_groups import are_of_parts, cut_groups
from fusion.symbolic.end_sums import end_sums, within_tables
from fusion.symbolic.fit import Fit
from fusion.symbolic.found_model import FoundModel
from fusion.symbolic.hold_between import hold_between
from fusion.symbolic.hold_corners import hold_corners
from fusion.symbolic.join import Joined, Probe, join_works, with_constants
from fusion.symbolic.nothing import bounds_with_nothing
from fusion.symbolic.open_dims import OpenDims, Undecided
from fusion.symbolic.open_model import OpenModel
from fusion.symbolic.open_weights import OpenWeight
from fusion.symbolic.settle_weights import Imports, settle
from fusion.symbolic.sized_imports import Import, SizedImports
from fusion.symbolic.tell_sizes import ToldSizes
from fusion.symbolic.unify import FunctionText, unify
from partition.formed import Grouping

_USUAL = 512
"""Of sizes beside batches: between a picture's side and the points of a cloud."""


@stage("open form")
@making_once()
def lower_for_all(
    read: Import,
    inputs: Sequence[TensorSpec],
    ctx: Context,
    first: Sequence[tuple[int, ...]] | None = None,
    bounds: Mapping[str, range] = MappingProxyType({}),
) -> OpenModel:
    """Return the model that `read` imports at given shapes, for all sizes of the dimensions its `inputs` leave open.

    Args:
        first: The shapes of the first call, which the model is for if it does not take all sizes; None without one.
        bounds: The sizes that dimensions of these names have.

    Raises:
        Declined: It has no such form, for this reason.
        Undecided: It has none now, as there was no memory to import it at some sizes, or its file was away.
        CallAtFault: It has none for all sizes, and those of `first` it does not take.
        FusionError: `read` refuses the model.
    """
    if ctx.libraries_only:
        raise Declined("libraries are to run all of it, and have one model for each size")
    dims = OpenDims.of(inputs)
    if dims is None:
        raise Declined("the rank of an input is open, or it is no tensor")
    sizes = None if first is None else dims.sizes(first)
    importer = SizedImports(read, dims.reaching(sizes).within(bounds), sizes)
    ctx = replace(ctx, opens_sizes=True).without_libraries("their models are for one size of each dimension")
    try:
        return _lower(importer, ctx)
    except (Declined, FusionError) as reason:
        if not importer.limits or isinstance(reason, Undecided) or reason in importer.limits:
            raise
        raise Undecided(f"{_text(reason)}, where {importer.limits[0].what}") from reason


def _text(reason: Exception) -> str:
    return reason.what if isinstance(reason, FusionError) else str(reason)


def _lower(importer: SizedImports, ctx: Context) -> OpenModel:
    begun = _Begun(importer, ctx)
    found = replace(importer, begin=begun.begin).find()
    importer = replace(importer, dims=found.dims)
    is_limited = bool(importer.limits)
    importer.limits.clear()  # they are its bounds
    found = hold_between(importer, hold_corners(importer, end_sums(importer, found)))
    is_limited |= bool(importer.limits)
    importer.limits.clear()
    near = begun.near(found)
    while True:
        try:
            model = _lower_settled(importer, found, ctx, near)
        except NeedsSizes as reason:
            near = near.cut(found, ctx, reason)
        else:
            return replace(model, is_limited=is_limited or bool(importer.limits))


@dataclass(frozen=True)
class _Near:
    """What passes make of a model at the sizes at which they see it, and what of that is the same at both.

    Attributes:
        one: Its form at the smaller ones.
        other: That at the larger ones.
        mod: The module with symbols; None where the sizes do not tell enough of it.
        kernels: Of that, by name, with their loops.
    """

    one: LoweredGraphs
    other: LoweredGraphs
    probes: tuple[Probe, Probe]
    fit: Fit
    joined: Joined
    mod: tvm.IRModule | None
    kernels: Mapping[str, Kernel]

    @classmethod
    def of(cls, importer: SizedImports, found: FoundModel, ctx: Context) -> _Near:
        """Return what passes make of `found`.

        Raises:
            Declined: It is not the same at both sizes.
        """
        first, second = (importer.read(sizes) for sizes in found.near)
        one = lower_graph(first, ctx)
        if any(one.lying.values()):
            one = lower_graph(first, ctx, choose_layout=_as_at_usual_sizes(importer, found, ctx))
        other = lower_like(second, ctx, one)
        try:
            return cls._joined(one, other, found, ctx)
        except Declined:
            if not (one.joins_in_place or other.joins_in_place):
                raise
        # Which parts of concatenations are worth writing in place depends on their sizes.
        one, other = (group_graphs(each.ungrouped, ctx, one.groups, joins_apart=True) for each in (one, other))
        return cls._joined(one, other, found, ctx)

    @classmethod
    def _joined(cls, one: LoweredGraphs, other: LoweredGraphs, found: FoundModel, ctx: Context) -> _Near:
        probes = Probe(one.mod), Probe(other.mod)
        fit, kernels = Fit(found.near, found.graph.extents), dict[str, Kernel]()

        def begin(name: str, kernel: tirx.PrimFunc) -> None:
            kernels[name] = begin_kernel(name, kernel, ctx)

        joined = Joined.of(probes, fit, found.dims, begin)
        if fit.has_doubts:
            return cls(one, other, probes, fit, joined, mod=None, kernels={})
        return cls(one, other, probes, fit, joined, mod=joined.module(), kernels=kernels)

    def cut(self, found: FoundModel, ctx: Context, reason: NeedsSizes) -> _Near:
        """Return what passes make of `found` without the kernels that need all sizes before the run, for this `reason`.
        Where these write parts of concatenations, as a convolution does not behind a class token, such are kernels of
        their own; else groups are cut.

        Raises:
            NeedsSizes: The kernels are one operator each.
        """
        if self.one.joins_in_place and are_of_parts(self.one, reason.kernels):
            return self._grouped(self.one.groups, found, ctx, joins_apart=True)
        why_not_open = partial(self._why_not_open, self.joined.told(), ctx)
        groups = cut_groups((self.one, self.other), reason.kernels, why_not_open)
        if groups is None:
            raise reason
        return self._grouped(groups, found, ctx, joins_apart=not self.one.joins_in_place)

    def _grouped(
        self, groups: Mapping[str, Grouping], found: FoundModel, ctx: Context, *, joins_apart: bool
    ) -> _Near:
        one, other = (
            group_graphs(each.ungrouped, ctx, groups, joins_apart=joins_apart) for each in (self.one, self.other)
        )
        return self._joined(one, other, found, ctx)

    def _why_not_open(self, told: ToldSizes, ctx: Context, funcs: Sequence[tirx.PrimFunc]) -> str:
        """Return why a kernel that is one of `funcs` at each probe needs all sizes before the run; "" where it does
        not."""
        fit = Fit(self.fit.probes, self.fit.known)
        try:
            kernel = told.kernel("", unify([FunctionText.of(func) for func in funcs], fit).function())
        except Declined as reason:
            return str(reason)
        with ctx.target:
            made = ctx.compiler.schedule(kernel)
            return made.note if needs_sizes(made, funcs, ctx) else ""


def _as_at_usual_sizes(importer: SizedImports, found: FoundModel, ctx: Context) -> LayoutChoice:
    """Return the choice of the layout that costs less at sizes that calls have, where the model can be imported there:
    at those that passes see a product is so small that what it costs to move a tensor decides."""
    dims, near = found.dims, found.near[0]
    usual = {name: near[name] if name in dims.leading else dims.at_most(name, _USUAL) for name in dims.symbols}
    is_lying = True
    with suppress(Declined, FusionError):
        is_lying = any(lower_graph(importer.read(dims.all_sizes(usual)), ctx).lying.values())
    return lambda lying, moved: lying if is_lying else moved


@dataclass
class _Begun:
    """What is made of models while imports look for their bounds: threads write the code of the kernels meanwhile."""

    importer: SizedImports
    ctx: Context
    _found: FoundModel | None = field(default=None, init=False)
    _near: Future[_Near] = field(default_factory=Future, init=False)

    def begin(self, found: FoundModel) -> None:
        """Begin with `found` in place of what turned out not to be the model."""
        self._found, self._near = found, Future()
        try:
            self._near.set_result(_Near.of(replace(self.importer, dims=found.dims), found, self.ctx))
        except Exception as error:  # it matters once `found` is the model
            self._near.set_exception(error)

    def near(self, found: FoundModel) -> _Near:
        """Return what passes make of `found`, which was begun last.

        Raises:
            Exception: Whatever they raised.
        """
        assert self._found is not None
        assert self._found.graph is found.graph
        return self._near.result()


def _lower_settled(importer: SizedImports, found: FoundModel, ctx: Context, near: _Near) -> OpenModel:
    """Return the model that is `near` at the sizes at which passes see it.

    Raises:
        Declined: It is not like that at other sizes.
    """
    probes: tuple[Probe, ...] = near.probes
    fit, joined, mod = near.fit, near.joined, near.mod
    if mod is None:
        largest = {symbol: taken[-1] for symbol, taken in (found.together or found.bounds).items()}
        further = choose_further(found.dims, found.near, largest)
        probes = (*probes, Probe(lower_like(importer.read(further), ctx, near.one).mod))
        fit = Fit((*found.near, further), found.graph.extents)
        joined = Joined.of(probes, fit, found.dims)
        mod = joined.module()
    seen = [
        Imports(told, found.dims, found.near, beside=found.beside, lowest=found.lowest, bounds=found.bounds)
        for told in importer.stages(found, ctx, near.one.lying)
    ]
    weights = [settle(weight, seen) if isinstance(weight, tuple) else weight for weight in joined.weights]
    mod = with_constants(mod, weights)
    work = OpenWork(join_works([probe.mod for probe in probes], fit), found.near[0])
    imported = importer.read(found.near[0])
    other = probes[1].mod
    lowered = lower_open(mod, ctx, imported, near.one, other=other, work=work, known=near.kernels)
    opened = tuple(weight for weight in weights if isinstance(weight, OpenWeight))
    bounds, opened = bounds_with_nothing(importer, within_tables(found, opened), opened)
    return OpenModel(lowered, found.dims, opened, found.dims.limited(bounds), fit=fit, reason=found.reason)
