"""Lowers a model for all sizes of its open dimensions: at some sizes, and then what these forms have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fusion.context import Context
from fusion.declined import Declined
from fusion.errors import FusionError
from fusion.made_once import making_once
from fusion.pipeline import LoweredGraphs, NeedsSizes, OpenWork, lower_graph, lower_open
from fusion.signature import TensorSpec
from fusion.stages import stage
from fusion.symbolic.choose_probes import choose_further
from fusion.symbolic.end_sums import end_sums, within_tables
from fusion.symbolic.fit import Fit
from fusion.symbolic.join import Joined, Probe, join_works, with_constants
from fusion.symbolic.nothing import bounds_with_nothing
from fusion.symbolic.open_dims import OpenDims, Undecided
from fusion.symbolic.open_model import OpenModel
from fusion.symbolic.open_weights import OpenWeight
from fusion.symbolic.settle_weights import Imports, settle
from fusion.symbolic.sized_imports import FoundModel, Import, SizedImports


@stage("open form")
@making_once()
def lower_for_all(
    read: Import, inputs: Sequence[TensorSpec], ctx: Context, first: Sequence[tuple[int, ...]] | None = None
) -> OpenModel:
    """Return the model that `read` imports at given shapes, for all sizes of the dimensions its `inputs` leave open.

    Args:
        first: The shapes of the first call, which the model is for if it does not take all sizes; None without one.

    Raises:
        Declined: It has no such form, for this reason.
        Undecided: It has none now, as there was no memory to import it at some sizes, or its file was away.
        CallAtFault: It has none for all sizes, and those of `first` it does not take.
        FusionError: `read` refuses the model.
    """
    dims = OpenDims.of(inputs)
    if dims is None:
        raise Declined("the rank of an input is open, or it is no tensor")
    importer = SizedImports(read, dims, None if first is None else dims.sizes(first))
    ctx = ctx.without_libraries("their models are for one size of each dimension")
    try:
        return _lower(importer, ctx)
    except (Declined, FusionError) as reason:
        if not importer.limits or isinstance(reason, Undecided) or reason in importer.limits:
            raise
        raise Undecided(f"{_text(reason)}, where {importer.limits[0].what}") from reason


def _text(reason: Exception) -> str:
    return reason.what if isinstance(reason, FusionError) else str(reason)


def _lower(importer: SizedImports, ctx: Context) -> OpenModel:
    found = importer.find()
    importer = replace(importer, dims=found.dims)
    found = end_sums(importer, found)
    is_limited = bool(importer.limits)
    importer.limits.clear()  # they are its bounds
    one = lower_graph(importer.read(found.near[0]), ctx)
    try:
        model = _lower_like(importer, found, ctx, one)
    except NeedsSizes:
        if not one.joins_in_place:
            raise
        # A convolution, say, writes no pixels behind a class token.
        model = _lower_like(importer, found, ctx, lower_graph(importer.read(found.near[0]), ctx, joins_apart=True))
    return replace(model, is_limited=is_limited or bool(importer.limits))


def _lower_like(importer: SizedImports, found: FoundModel, ctx: Context, one: LoweredGraphs) -> OpenModel:
    """Return the model whose form at the smaller sizes that passes see is `one`.

    Raises:
        Declined: It is not like that at other sizes.
    """
    joins_apart = not one.joins_in_place
    other = lower_graph(importer.read(found.near[1]), ctx, one.groups, joins_apart=joins_apart)
    probes = [Probe(one.mod), Probe(other.mod)]
    fit = Fit(found.near, found.graph.extents)
    joined = Joined.of(probes, fit)
    if fit.has_doubts:
        largest = {symbol: taken[-1] for symbol, taken in (found.together or found.bounds).items()}
        further = choose_further(found.dims, found.near, largest)
        probes.append(Probe(lower_graph(importer.read(further), ctx, one.groups, joins_apart=joins_apart).mod))
        fit = Fit((*found.near, further), found.graph.extents)
        joined = Joined.of(probes, fit)
    seen = [Imports(told, found.dims, near=found.near, bounds=found.bounds) for told in importer.stages(found, ctx)]
    weights = [settle(weight, seen) if isinstance(weight, tuple) else weight for weight in joined.weights]
    mod = with_constants(joined.module(found.dims), weights)
    work = OpenWork(join_works([probe.mod for probe in probes], fit), found.near[0])
    imported = importer.read(found.near[0])
    lowered = lower_open(mod, ctx, imported, one, other=other.mod, work=work)
    opened = tuple(weight for weight in weights if isinstance(weight, OpenWeight))
    bounds = bounds_with_nothing(importer, within_tables(found, opened), opened)
    return OpenModel(lowered, found.dims, opened, bounds, fit=fit, reason=found.reason)
