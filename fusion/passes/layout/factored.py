"""Tensors whose axes consist of factors that lie apart in memory, as reshapes and transposes in a row leave them.

    x: N, C, H, W stored as H, W, C
    z = reshape(permute_dims(reshape(x, (N, C, H/2, 2, W/2, 2)), (0, 3, 5, 2, 4, 1)), (4 N, H/2 W/2, C))
    ->  z has the axes (H1, W1), (H0, W0), (C) in the memory of x, whose factors are H0, H1, W0, W1, C

Nothing moves until an operator reads such a tensor, and then once for the whole chain; where a later reshape puts the
factors back together, not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax

from fusion.constants import reshaped, transposed
from fusion.declined import Declined
from fusion.passes.layout import order as orders
from fusion.passes.layout.order import Order, Shape
from fusion.passes.layout.placed import Placed
from fusion.passes.layout.preferences import Preference


@dataclass(frozen=True)
class Factored:
    """A logical tensor over the memory of `stored`.

    Attributes:
        stored: Its own shape means nothing.
        factors: Extents in the order of memory; none is 1.
        axes: For each logical axis the places of its factors in `factors`, the outermost first.
    """

    stored: relax.Expr
    factors: tuple[int, ...]
    axes: tuple[tuple[int, ...], ...]

    @property
    def shape(self) -> Shape:
        """Logical extents."""
        return tuple(prod(self.factors[place] for place in axis) for axis in self.axes)

    @property
    def nearest_order(self) -> Order:
        """The order by where the axes end, which keeps the contiguous axis contiguous."""
        shape = self.shape
        dense = [axis for axis in range(len(shape)) if shape[axis] != 1]
        return orders.place_ones(sorted(dense, key=lambda axis: self.axes[axis][-1]), shape)

    def arranged(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return an array that broadcasts against the logical tensor so that it does against `factors`."""
        values = values.reshape((1,) * (len(self.axes) - values.ndim) + values.shape)
        extents = [
            self.factors[place] if values.shape[axis] != 1 else 1
            for axis, places in enumerate(self.axes)
            for place in places
        ]
        in_memory = np.argsort(self._places(orders.identity(len(self.axes))))
        return np.transpose(values.reshape(extents), in_memory)

    def in_memory(self, builder: relax.BlockBuilder, lead: int = 0) -> relax.Expr:
        """Return the memory as a tensor of `factors`, `lead` axes of size 1 before them."""
        return reshaped(builder, self.stored, (1,) * lead + self.factors)

    def settled(self, builder: relax.BlockBuilder, order: Order) -> Placed:
        """Return the tensor in an order of its axes."""
        shape, places = self.shape, self._places(order)
        moves = places != sorted(places)
        stored = transposed(builder, self.in_memory(builder), places) if moves else self.stored
        return Placed(reshaped(builder, stored, orders.stored_shape(order, shape)), order, shape)

    def keeps_last(self, order: Order) -> bool:
        """Return whether what is contiguous stays so in `order`: the kernel before takes such a move along."""
        return self._places(order)[-1:] == [len(self.factors) - 1]

    def wanted_order(self, preference: Preference | None) -> Order:
        """Return an order that fulfils a preference, row-major or else the one nearest to the memory if they do."""
        shape, nearest = self.shape, self.nearest_order
        if preference is None:
            return nearest
        wanted = preference.order[len(preference.order) - preference.last :]
        turned = (*(axis for axis in nearest if axis not in wanted), *wanted)
        candidates = orders.identity(len(shape)), nearest, turned
        return next(order for order in candidates if preference.is_met(order, shape))

    def _places(self, order: Order) -> list[int]:
        return [place for axis in order for place in self.axes[axis]]

    def permuted(self, axes: Sequence[int]) -> Factored:
        """Return `permute_dims(self, axes)`."""
        return Factored(self.stored, self.factors, tuple(self.axes[axis] for axis in axes))


def factored(tensor: Placed) -> Factored:
    """Return a tensor by its factors: one for each axis."""
    dense = [axis for axis in tensor.order if tensor.shape[axis] != 1]
    axes = tuple((dense.index(axis),) if axis in dense else () for axis in range(len(tensor.shape)))
    return Factored(tensor.stored, tuple(tensor.shape[axis] for axis in dense), axes)


def reshape(builder: relax.BlockBuilder, tensor: Placed | Factored, shape: Shape) -> Placed | Factored:
    """Return `reshape(tensor, shape)` over the same memory.

    Raises:
        Declined: An axis would end inside a factor, or there is no memory.
    """
    data = factored(tensor) if isinstance(tensor, Placed) else tensor
    if not prod(shape):
        raise Declined("it has no elements")
    axes: dict[int, list[_Piece]] = {}
    for old, new in orders.factor_groups(data.shape, shape):
        axes.update(zip(new, _cut(_runs(data, old), [shape[axis] for axis in new]), strict=True))
    lying = sorted(piece for axis in axes.values() for piece in axis)
    places = {piece: place for place, piece in enumerate(lying)}
    made = Factored(
        data.stored,
        tuple(piece.extent for piece in lying),
        tuple(tuple(places[piece] for piece in axes[axis]) for axis in range(len(shape))),
    )
    return made if any(len(axis) > 1 for axis in made.axes) else made.settled(builder, made.nearest_order)


@dataclass(frozen=True, order=True)
class _Piece:
    """A part of a run of factors.

    Attributes:
        run: Where the run begins.
        inside: How many elements of the run lie outside of this part; outer parts come first in memory.
        extent: Of the part.
    """

    run: int
    inside: int
    extent: int


def _runs(data: Factored, axes: Iterable[int]) -> list[_Piece]:
    """Return the factors of `axes`, outermost first, those that follow each other in memory as one."""
    runs: list[_Piece] = []
    last = -2
    for place in (place for axis in axes for place in data.axes[axis]):
        if place == last + 1:
            runs[-1] = _Piece(runs[-1].run, 1, runs[-1].extent * data.factors[place])
        else:
            runs.append(_Piece(place, 1, data.factors[place]))
        last = place
    return runs


def _cut(runs: list[_Piece], extents: Sequence[int]) -> list[list[_Piece]]:
    """Cut `runs` into axes of `extents`; declines where one ends inside a run that it does not divide."""
    left = list(reversed(runs))
    axes: list[list[_Piece]] = []
    for extent in extents:
        axes.append([])
        while extent > 1:
            run = left.pop()
            if extent % run.extent == 0:
                axes[-1].append(run)
                extent //= run.extent
            elif run.extent % extent == 0:
                axes[-1].append(_Piece(run.run, run.inside, extent))
                left.append(_Piece(run.run, run.inside * extent, run.extent // extent))
                extent = 1
            else:
                raise Declined("an axis of its result would end inside of what lies together")
    return axes
