"""The run-time plan of a model whose sizes only a call knows: which memory it needs at which sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

from fusion.extents import Extent, Sizes
from fusion.module.plan import Argument, KernelCall, RunPlan, TensorPlan
from fusion.symbolic.open_dims import OpenDims
from fusion.symbolic.open_weights import OpenWeight
from fusion.tensors import tensor_bytes

Shape = tuple[Extent, ...]


@dataclass(frozen=True)
class OpenRunPlan:
    """Memory and calls of `main` at any sizes within bounds.

    Attributes:
        typical: The plan at `typical_sizes`. Which activations share memory is decided there: they never live
            together at others either.
        buffers: The extents of each of its buffers.
        given: Those of the results that it is given memory for.
        arguments: Those of what each call of a kernel takes.
        dims: The dimensions of the inputs.
        bounds: The sizes of each symbol.
        weights: What `main` takes after the inputs, at all sizes of the call.
    """

    typical: RunPlan
    typical_sizes: Sizes
    buffers: tuple[Shape, ...]
    given: tuple[Shape, ...]
    arguments: tuple[tuple[Shape, ...], ...]
    dims: OpenDims
    bounds: Mapping[str, range]
    weights: tuple[OpenWeight, ...]

    def sizes(self, shapes: Sequence[tuple[int, ...]]) -> Sizes | None:
        """Return the size of each symbol of the inputs where they have these shapes; None where the plan is not for
        them."""
        sizes = self.dims.sizes(shapes)
        if sizes is None or any(sizes[symbol] not in taken for symbol, taken in self.bounds.items()):
            return None
        known = self.dims.all_sizes(sizes) if self._short_weights else sizes
        return sizes if all(weight.covers(known) for weight in self._short_weights) else None

    @cached_property
    def _short_weights(self) -> tuple[OpenWeight, ...]:
        """Parts of tables that end before some sizes within the bounds: a cache and what is behind it are together as
        long as the table of positions."""
        ends = [(taken[0], taken[-1]) for taken in self.bounds.values()]
        corners = [dict(zip(self.bounds, corner, strict=True)) for corner in product(*ends)]
        known = [self.dims.all_sizes(corner) for corner in corners]
        return tuple(weight for weight in self.weights if not all(map(weight.covers, known)))

    def is_made_for(self, shapes: Sequence[tuple[int, ...]]) -> bool:
        """Return whether a model whose first call has these shapes has this form: it may lie beyond its bounds, if no
        larger ones are looked for from that call on."""
        sizes = self.dims.sizes(shapes)
        if sizes is None or any((sizes[symbol] - taken.start) % taken.step for symbol, taken in self.bounds.items()):
            return False
        reaches_further = self.dims.reaching(sizes) != self.dims
        return not reaches_further or all(sizes[symbol] in taken for symbol, taken in self.bounds.items())

    def rests(self, shapes: Sequence[tuple[int, ...]]) -> list[list[int]]:
        """Return what tells a model whose first call has these shapes from others, if all take sizes in steps like
        those of this one: what is left of each size, and the whole of one that is no symbol here, or follows from
        others; and up to where sizes are looked for."""
        rests = [
            [extent % self.bounds[dim].step if isinstance(dim, str) and dim in self.bounds else extent
             for dim, extent in zip(dims, shape, strict=True)]
            for dims, shape in zip(self.dims.dims, shapes, strict=True)
        ]  # fmt: skip
        return [*rests, [self.dims.reaching(self.dims.sizes(shapes)).largest]]

    def describe_bounds(self) -> str:
        """Return for which sizes it is, as reports and errors show it."""
        found = [f"{symbol} {_describe(taken)}" for symbol, taken in self.bounds.items()]
        return ", ".join([*found, *map(str, self.dims.following)])

    def describe_typical(self) -> str:
        """Return at which sizes reports show it."""
        return describe_sizes(self.typical_sizes)

    def at(self, sizes: Sizes) -> RunPlan:
        """Return the plan at all sizes of a call: a storage is as large as the largest tensor that lies in it."""
        tensors, places = self._tensors
        shapes = (tuple([extent.at(sizes) for extent in shape]) for _, shape in tensors)
        known = [TensorPlan(held.storage, shape, held.dtype) for (held, _), shape in zip(tensors, shapes, strict=True)]
        storages = [0] * len(self.typical.storages)
        for tensor in known:
            storages[tensor.storage] = max(storages[tensor.storage], tensor_bytes(tensor.shape, tensor.dtype))
        buffers = tuple([known[place] for place in places])
        return replace(self.typical, storages=tuple(storages), buffers=buffers, given=self._given_at(sizes))

    def _given_at(self, sizes: Sizes) -> tuple[Argument, ...]:
        pairs = zip(self.typical.given, self.given, strict=True)
        return tuple([replace(held, shape=tuple([extent.at(sizes) for extent in shape])) for held, shape in pairs])

    def result_bytes(self, sizes: Sizes) -> int:
        """Return the bytes of `RunPlan.results` at all sizes of a call."""
        return sum(tensor_bytes(tuple([extent.at(sizes) for extent in shape]), dtype) for dtype, shape in self._results)

    @cached_property
    def _results(self) -> tuple[tuple[str, Shape], ...]:
        pairs = zip(self.typical.calls, self.arguments, strict=True)
        shapes = {held: shape for call, each in pairs for held, shape in zip(call.arguments, each, strict=True)}
        return tuple((held.dtype, shapes[held]) for held in self.typical.results if held in shapes)

    @cached_property
    def _tensors(self) -> tuple[tuple[tuple[TensorPlan, Shape], ...], tuple[int, ...]]:
        """The buffers, each once with its extents, and which of these each is: layers alike have the same."""
        pairs = tuple(zip(self.typical.buffers, self.buffers, strict=True))
        found = {pair: place for place, pair in enumerate(dict.fromkeys(pairs))}
        return tuple(found), tuple(found[pair] for pair in pairs)

    def calls_at(self, sizes: Sizes) -> tuple[KernelCall, ...]:
        """Return the calls with the shapes that their arguments have at all sizes of a call."""
        calls = []
        for call, shapes in zip(self.typical.calls, self.arguments, strict=True):
            known = (tuple(extent.at(sizes) for extent in shape) for shape in shapes)
            pairs = zip(call.arguments, known, strict=True)
            calls.append(replace(call, arguments=tuple(replace(argument, shape=shape) for argument, shape in pairs)))
        return tuple(calls)


def describe_sizes(sizes: Sizes) -> str:
    """Return the size of each symbol, in one line."""
    return ", ".join(f"{symbol} {size}" for symbol, size in sizes.items())


def _describe(taken: range) -> str:
    return f"{taken[0]} to {taken[-1]}" + (f" in steps of {taken.step}" if taken.step > 1 else "")
