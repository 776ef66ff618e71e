"""What imports at some sizes tell of a model for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fusion.extents import Sizes
from fusion.symbolic.imported_constants import ImportedConstants
from fusion.symbolic.open_dims import OpenDims
from fusion.symbolic.outline import OpenOutline


@dataclass(frozen=True)
class FoundModel:
    """What imports tell of a model.

    Attributes:
        dims: Its dimensions, with the sizes that follow from those of its inputs.
        near: All sizes at which passes are to see it.
        graph: Its operators.
        constants: Those of the imports.
        beside: The sizes of all others where imports show one as another one: as small as can be where it is the same
            model there, as constants are looked at there too, or those near by.
        lowest: All sizes as small as can be, where it is the same model there, constants too; else `beside`.
        bounds: The sizes of each symbol of the inputs.
        together: Those of them that it is the same for whatever the others are, where it is another one if all are as
            large as can be: a table ends at a sum of two; else empty.
        reason: Why these are not all; empty where they are.
    """

    dims: OpenDims
    near: tuple[Sizes, Sizes]
    graph: OpenOutline
    constants: ImportedConstants
    beside: Sizes
    lowest: Sizes
    bounds: Mapping[str, range] = field(default_factory=dict)
    together: Mapping[str, range] = field(default_factory=dict)
    reason: str = ""

    def with_size(self, symbol: str, size: int) -> Sizes:
        """Return sizes at which that of `symbol` is another one than `beside`."""
        return self.dims.all_sizes({**self.beside, symbol: size})

    def is_between(self, sizes: Sizes) -> bool:
        """Return whether `sizes` of the inputs lie between those of imports that have shown it, as the bounds of one
        symbol beside the sizes of the others here do."""
        moved = sum(size != self.beside[symbol] for symbol, size in sizes.items())
        return moved < 2 and all(size in self.bounds[symbol] for symbol, size in sizes.items())
