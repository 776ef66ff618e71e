"""Lowers a model for all sizes of its open dimensions: at some sizes, and then what these forms have in common."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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
from fusion.symbolic.join import Probe, join_kernels, join_weights, with_constants
from fusion.symbolic.open_dims import OpenDims
from fusion.symbolic.open_model import OpenModel
from fusion.symbolic.open_weights import OpenWeight
from fusion.symbolic.outline import OpenOutline, outline
from fusion.tensors import as_numpy
from partition.formed import Grouping

Import = Callable[[Mapping[str, Sequence[int]]], ImportedModel]
_LARGEST = 4096
"""Of a symbol that nothing in the model bounds."""
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
    near, graph = importer.near()
    imported = [importer.read(sizes) for sizes in near]
    bounds = importer.bounds(graph, near)
    first = lower_graph(imported[0], ctx)
    groups = first.fact.get(Grouping)
    others = [lower_graph(mod, ctx, groups).mod for mod in imported[1:]]
    probes = [Probe.of(mod, sizes) for mod, sizes in zip((first.mod, *others), near, strict=True)]
    mod = join_kernels(probes)
    weights = [
        weight.to(importer.largest(weight, bounds, near)) if isinstance(weight, OpenWeight) else weight
        for weight in join_weights(probes)
    ]
    lowered = lower_open(with_constants(mod, weights), ctx)
    opened = tuple(weight for weight in weights if isinstance(weight, OpenWeight))
    return OpenModel(lowered, dims, opened, bounds, near)


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

    def near(self) -> tuple[tuple[Sizes, Sizes], OpenOutline]:
        """Return the largest two sizes of those that passes may see at which the model is the same, and its operators.

        Raises:
            Declined: It is another one at all of them, for this reason at the smallest.
            FusionError: It cannot be imported at these.
        """
        choices = list(self.dims.probes())
        if not choices:
            raise Declined(f"it leaves {len(self.dims.symbols)} sizes open that have nothing to do with each other")
        last = choices.pop()
        for near in choices:
            with contextlib.suppress(Declined, FusionError):
                return near, self._outline(near)
        return last, self._outline(last)

    def _outline(self, near: Sequence[Sizes]) -> OpenOutline:
        return OpenOutline.of([outline(self.read(sizes)) for sizes in near], near)

    def bounds(self, graph: OpenOutline, near: Sequence[Sizes]) -> dict[str, tuple[int, int]]:
        """Return the smallest and the largest size of each symbol at which the imported model is known to be `graph`:
        the other symbols keep theirs.

        Raises:
            Declined: It is not, where one symbol alone is larger: a sum of two sizes, or what is left of a division.
        """
        ones = dict.fromkeys(self.dims.symbols, 1)
        all_ones = self._is_same(ones, graph)
        found = {}
        for symbol in self.dims.symbols:
            low = 1 if all_ones or self._is_same({**near[0], symbol: 1}, graph) else near[0][symbol]
            found[symbol] = low, self._largest(symbol, graph, near)
        return found

    def _largest(self, symbol: str, graph: OpenOutline, near: Sequence[Sizes]) -> int:
        if self._is_same({**near[0], symbol: _LARGEST}, graph):
            return _LARGEST
        if not self._is_same({**near[0], symbol: near[0][symbol] + 1}, graph):
            raise Declined(f"a size in it is no product of open sizes where {symbol} alone is another")
        same = takewhile(lambda size: self._is_same({**near[0], symbol: size}, graph), _BOUNDED)
        return max((*same, *(sizes[symbol] for sizes in near)))

    def _is_same(self, sizes: Sizes, graph: OpenOutline) -> bool:
        try:
            return graph.is_at(outline(self.read(sizes)), sizes)
        except (Declined, FusionError):
            return False

    def largest(self, weight: OpenWeight, bounds: Mapping[str, tuple[int, int]], near: Sequence[Sizes]) -> np.ndarray:
        """Return the table of `weight` at the largest sizes, as the model has it when it is imported.

        Raises:
            Declined: It is none of the constants of the imported model.
        """
        if not weight.grows:
            return weight.table
        beginning = weight.at(near[0])
        held = _constants(self.read(near[0]))
        place = next((place for place, value in enumerate(held) if _equal(value, beginning)), None)
        sizes = {symbol: bounds[symbol][1] if symbol in weight.symbols else near[0][symbol] for symbol in bounds}
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
