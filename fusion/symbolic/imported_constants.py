"""The constants of an imported model: which of them depend on sizes, and whether they go on at others as they begin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import tvm
from tvm import relax
from tvm.ir import GenericConst

from fusion.bindings import call_name
from fusion.declined import Declined
from fusion.extents import Sizes
from fusion.frontends.branched import graphs_of
from fusion.passes.fold_constants import INDEXING, has_value
from fusion.structural import find
from fusion.symbolic.fit import Fit
from fusion.symbolic.join_weights import grown, join_weight
from fusion.symbolic.open_weights import OpenWeight
from fusion.tensors import as_numpy, same_bits


@dataclass(frozen=True, eq=False)
class ImportedConstants:
    """What the constants of imports at two sizes have in common.

    Attributes:
        count: How many places there are at which one is read.
        opened: What those that depend on sizes may be, by place. Without what the model does not compute with, as the
            shape that a tensor is to have: it is another one at each size.
        fixed: Those that are the same at both, by place, without what imports share, which is data of the model: the
            others may be made of sizes, as the least of a thousand and all pixels, and be other ones elsewhere.
    """

    count: int
    opened: Mapping[int, tuple[OpenWeight, ...]]
    fixed: Mapping[int, tvm.runtime.Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, mods: Sequence[tvm.IRModule], fit: Fit) -> ImportedConstants:
        """Return those of imports at the probes of `fit`."""
        rows = list(zip(*map(_tensors, mods), strict=False))
        made = {place: row for place, row in enumerate(rows) if not all(value.same_as(row[0]) for value in row)}
        fixed = {place: row[0] for place, row in made.items() if _are_same(row)}
        joined = {place: _join(row, fit) for place, row in made.items() if place not in fixed}
        return cls(len(rows), {place: weight for place, weight in joined.items() if weight is not None}, fixed)

    def made(self, value: relax.Expr) -> list[np.ndarray]:
        """Return those of `fixed` that an operator of the first import reads."""
        held = [each.value for each in find(value, GenericConst)]
        return [as_numpy(each) for each in held if any(each.same_as(other) for other in self.fixed.values())]

    def grow_with(self, symbol: str) -> bool:
        """Return whether larger sizes of `symbol` need larger tables."""
        return any(weight.grows and symbol in weight.symbols for weight, *_ in self.opened.values())

    def can_be(self, mod: tvm.IRModule, sizes: Sizes) -> bool:
        """Return whether those of an import at `sizes` go on as these begin."""
        held = _tensors(mod)
        return self.stay_in(mod) and all(
            any(grown(weight, as_numpy(held[place]), sizes) for weight in rivals)
            for place, rivals in self.opened.items()
        )

    def stay_in(self, mod: tvm.IRModule) -> bool:
        """Return whether an import has as many constants, and the `fixed` ones at their places."""
        held = _tensors(mod)
        return len(held) == self.count and all(_are_same((held[place], value)) for place, value in self.fixed.items())


def constants_of(mod: tvm.IRModule) -> list[np.ndarray]:
    """Return the constants of a model and its branches, one for each place where one is read."""
    return list(map(as_numpy, _tensors(mod)))


def fails_always(mod: tvm.IRModule) -> bool:
    """Return whether every run of a model reads outside of a table of constants, at places that are constants too."""
    reads = (value for value in find(mod["main"], relax.Call) if call_name(value) in INDEXING)
    known = (call for call in reads if all(isinstance(arg, GenericConst) for arg in call.args))
    return any(not has_value(call, [as_numpy(arg.value) for arg in call.args]) for call in known)


def _tensors(mod: tvm.IRModule) -> list[tvm.runtime.Tensor]:
    """Return the constants of a model and its branches, one for each place where one is read."""
    held = [constant for graph in graphs_of(mod) for constant in find(graph, GenericConst)]
    return [constant.value for constant in held if isinstance(constant.value, tvm.runtime.Tensor)]


def _join(values: Sequence[tvm.runtime.Tensor], fit: Fit) -> tuple[OpenWeight, ...] | None:
    try:
        joined = join_weight([as_numpy(value) for value in values], fit)
    except Declined:
        return None
    return joined if isinstance(joined, tuple) else None


def _are_same(values: Sequence[tvm.runtime.Tensor]) -> bool:
    """Return whether all constants are the same to the last bit."""
    first, *others = map(as_numpy, values)
    return all(same_bits(first, other) for other in others)
