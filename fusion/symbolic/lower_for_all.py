"""Lowers a model for all sizes of its open dimensions: at some sizes, and then what these forms have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

import numpy as np
import tvm
from tvm.ir import GenericConst

from fusion.context import Context
from fusion.declined import Declined
from fusion.errors import FusionError
from fusion.extents import Sizes
from fusion.frontends.imported import ImportedModel
from fusion.pipeline import lower_graph, lower_open
from fusion.signature import TensorSpec
from fusion.stages import stage
from fusion.structural import find
from fusion.symbolic.choose_probes import choose_further, choose_probes
from fusion.symbolic.derive import Deduction, deduce, telling
from fusion.symbolic.fit import Fit, NotLinearError
from fusion.symbolic.join import Probe, join, with_constants
from fusion.symbolic.open_dims import OpenDims
from fusion.symbolic.open_model import OpenModel
from fusion.symbolic.open_weights import OpenWeight
from fusion.symbolic.outline import OpenOutline, outline
from fusion.tensors import as_numpy
from partition.formed import Grouping

Import = Callable[[Mapping[str, Sequence[int]]], ImportedModel]
_LARGEST = 4096
"""Of a symbol that nothing in the model bounds."""
_SMALL = (8, 32)
"""Smallest sizes that are tried of images that are too small for a window at 1."""
_SEEN, _MOST_SEEN = 4, 12
"""Imports that tell which sizes follow from others: at first, and at most."""
_BOUNDED = (512, 1024, 2048)
"""Sizes of others, such as of one that counts positions in a table: the largest for which the model is the same."""


@stage("open form")
def lower_for_all(read: Import, inputs: Sequence[TensorSpec], ctx: Context) -> OpenModel:
    """Return the model that `read` imports at given shapes, for all sizes of the dimensions its `inputs` leave open.

    Raises:
        Declined: It has no such form, for this reason.
        FusionError: `read` refuses the model.
    """
    dims = OpenDims.of(inputs)
    if dims is None:
        raise Declined("the rank of an input is open, or it is no tensor")
    importer = _Importer(read, dims)
    found = importer.find()
    first = lower_graph(importer.read(found.near[0]), ctx)
    groups = first.fact.get(Grouping)
    second = lower_graph(importer.read(found.near[1]), ctx, groups)
    probes = [Probe.of(first.mod), Probe.of(second.mod)]
    fit = Fit(found.near, found.graph.extents)
    joined = join(probes, fit, found.dims.derived)
    if fit.has_doubts:
        largest = {symbol: high for symbol, (_, high) in found.bounds.items()}
        further = choose_further(found.dims, found.near, largest)
        probes.append(Probe.of(lower_graph(importer.read(further), ctx, groups).mod))
        fit = Fit((*found.near, further), found.graph.extents)
        joined = join(probes, fit, found.dims.derived)
    weights = [
        weight.to(importer.largest(weight, found)) if isinstance(weight, OpenWeight) else weight
        for weight in joined.weights
    ]
    lowered = lower_open(with_constants(joined.mod, weights), ctx)
    opened = tuple(weight for weight in weights if isinstance(weight, OpenWeight))
    return OpenModel(lowered, found.dims, opened, found.bounds, fit)


@dataclass(frozen=True)
class _Found:
    """What imports tell of a model.

    Attributes:
        dims: Its dimensions, with the sizes that follow from those of its inputs.
        near: All sizes at which passes are to see it.
        graph: Its operators.
        bounds: The smallest and the largest size of each symbol of the inputs.
    """

    dims: OpenDims
    near: tuple[Sizes, Sizes]
    graph: OpenOutline
    bounds: Mapping[str, tuple[int, int]]


@dataclass
class _Importer:
    """Imports a model at sizes of its symbols, once at each."""

    read_shapes: Import
    dims: OpenDims
    _read: dict[tuple[int, ...], tvm.IRModule] = field(default_factory=dict, init=False)

    def read(self, sizes: Sizes) -> tvm.IRModule:
        """Return the model at `sizes`.

        Raises:
            Declined: A part of it is run by a library, or it has branches, for which there is no open form.
        """
        key = tuple(sizes[symbol] for symbol in self.dims.symbols)
        if key not in self._read:
            imported = self.read_shapes(self.dims.shapes(sizes))
            if imported.mod is None or imported.subgraphs:
                raise Declined("ONNX Runtime runs a part of it")
            if imported.branches:
                raise Declined("it has branches that only the run decides on")
            self._read[key] = imported.mod
        return self._read[key]

    def find(self) -> _Found:
        """Return what the model is for all sizes.

        Raises:
            Declined: It is another one at some, for this reason.
            FusionError: It cannot be imported at the sizes that passes may see.
        """
        choices = list(self.dims.probes())
        if not choices:
            raise Declined(f"it leaves {len(self.dims.symbols)} sizes open that have nothing to do with each other")
        for near in choices[:-1]:
            try:
                return self._found(near)
            except NotLinearError as reason:
                return self._found_derived(near, reason)
            except (Declined, FusionError):
                continue
        try:
            return self._found(choices[-1])
        except (Declined, FusionError) as reason:
            return self._found_derived(choices[0], reason)

    def _found(self, near: tuple[Sizes, Sizes]) -> _Found:
        """Return the model if all its numbers are extents of the open sizes."""
        graph = OpenOutline.of([outline(self.read(sizes)) for sizes in near], Fit(near))
        return _Found(self.dims, near, graph, self._bounds(self.dims, graph, near))

    def _found_derived(self, small: Sequence[Sizes], reason: Exception) -> _Found:
        """Return the model with sizes that follow from others; it has `reason` to have no form without."""
        try:
            deduction = self._deduce()
        except (Declined, FusionError):
            deduction = None
        if deduction is None or not deduction.derived:
            raise reason
        dims = replace(self.dims, derived=deduction.derived)
        near = choose_probes(dims, small, deduction.graph.fixed)
        if not all(self._is_same(sizes, deduction.graph, dims) for sizes in near):
            raise Declined("sizes in it that follow from others do so otherwise elsewhere")
        return _Found(dims, near, deduction.graph, self._bounds(dims, deduction.graph, near))

    def _deduce(self) -> Deduction:
        """Return what follows from the numbers of the model at as many sizes as tell all of it."""
        seen = [self.dims.spread(place) for place in range(_SEEN)]
        while True:
            try:
                deduction = deduce([outline(self.read(sizes)) for sizes in seen], seen)
                sizes = telling(deduction, self.dims.spread(len(seen)))
            except NotLinearError:
                sizes = self.dims.spread(len(seen))
                if len(seen) >= _MOST_SEEN:
                    raise
            if sizes is None or len(seen) >= _MOST_SEEN:
                return deduction
            seen.append(sizes)

    def _bounds(self, dims: OpenDims, graph: OpenOutline, near: Sequence[Sizes]) -> dict[str, tuple[int, int]]:
        """Return the smallest and the largest size of each symbol at which the imported model is known to be `graph`:
        the other symbols keep theirs.

        Raises:
            NotLinearError: It is not, where one symbol alone is larger: a sum of two sizes, or what is left of a
                division.
        """
        all_ones = self._is_same(dict.fromkeys(dims.symbols, 1), graph, dims)
        found = {}
        for symbol in dims.symbols:
            sizes = (1,) if all_ones else (1, *(_SMALL if dims.derived else ()))
            smallest = (size for size in sizes if all_ones or self._is_same({**near[0], symbol: size}, graph, dims))
            found[symbol] = next(smallest, near[0][symbol]), self._largest(symbol, dims, graph, near)
        return found

    def _largest(self, symbol: str, dims: OpenDims, graph: OpenOutline, near: Sequence[Sizes]) -> int:
        if self._is_same({**near[0], symbol: _LARGEST}, graph, dims):
            return _LARGEST
        same = [*takewhile(lambda size: self._is_same({**near[0], symbol: size}, graph, dims), _BOUNDED)]
        if not same and not self._is_same({**near[0], symbol: near[0][symbol] + 1}, graph, dims):
            raise NotLinearError(f"a size in it is no product of open sizes where {symbol} alone is another")
        return max((*same, *(sizes[symbol] for sizes in near)))

    def _is_same(self, sizes: Sizes, graph: OpenOutline, dims: OpenDims) -> bool:
        try:
            return graph.is_at(outline(self.read(sizes)), dims.all_sizes(sizes))
        except (Declined, FusionError):
            return False

    def largest(self, weight: OpenWeight, found: _Found) -> np.ndarray:
        """Return the table of `weight` at the largest sizes, as the model has it when it is imported.

        Raises:
            Declined: It is none of the constants of the imported model.
        """
        if not weight.grows:
            return weight.table
        near = found.near
        beginning = weight.at(near[0])
        held = _constants(self.read(near[0]))
        place = next((place for place, value in enumerate(held) if _equal(value, beginning)), None)
        grown = {symbol: high for symbol, (_, high) in found.bounds.items() if symbol in weight.symbols}
        sizes = {symbol: grown.get(symbol, near[0][symbol]) for symbol in found.bounds}
        if place is None or not self._has_constants(sizes, len(held)):
            raise Declined("passes make a constant that depends on the sizes of another one")
        return _constants(self.read(sizes))[place]

    def _has_constants(self, sizes: Sizes, count: int) -> bool:
        return len(_constants(self.read(sizes))) == count


def _constants(mod: tvm.IRModule) -> list[np.ndarray]:
    """Return the constants of `main`, one for each place where one is read."""
    held = find(mod["main"], GenericConst)
    return [as_numpy(constant.value) for constant in held if isinstance(constant.value, tvm.runtime.Tensor)]


def _equal(first: np.ndarray, second: np.ndarray) -> bool:
    return first.shape == second.shape and first.dtype == second.dtype and np.array_equal(first, second)
