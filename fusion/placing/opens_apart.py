"""Libraries whose regions only other processes open: the one that tries them, and the one that measures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from backends.backend import GraphLibrary, Open, RegionLibrary, VersionedLibrary

if TYPE_CHECKING:
    from tvm import relax


Asked = TypeVar("Asked", bound=RegionLibrary)


@dataclass(frozen=True)
class _OpensApart(Generic[Asked]):
    """What a library of either kind is.

    Attributes:
        library: What runs regions.
    """

    library: Asked

    @property
    def version(self) -> str:
        """See `GraphLibrary`."""
        return self.library.version

    def export(self, function: relax.Function) -> bytes:
        """See `GraphLibrary`."""
        return self.library.export(function)

    def open(self, data: bytes, threads: int) -> Open:
        """See `GraphLibrary`: this process opens the region when it is called, which only a test of it does."""

        def call(arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
            return self.library.open(data, threads)(arrays)

        return call


class _RegionsApart(_OpensApart[GraphLibrary]):
    """A `GraphLibrary`."""

    def why_not_taken(self, call: relax.Call) -> str:
        """See `GraphLibrary`."""
        return self.library.why_not_taken(call)


class _PartsApart(_OpensApart[VersionedLibrary]):
    """A `VersionedLibrary`."""

    @property
    def patterns(self) -> Sequence[relax.transform.FusionPattern]:
        """See `Library`."""
        return self.library.patterns


def opens_apart(library: RegionLibrary) -> RegionLibrary:
    """Return a library of which a compilation opens nothing here, what it may run being opened elsewhere first."""
    return _PartsApart(library) if isinstance(library, VersionedLibrary) else _RegionsApart(library)
