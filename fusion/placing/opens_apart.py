"""Libraries whose regions are opened in the process that measures before this one opens them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from backends.backend import GraphLibrary, Open, RegionLibrary, VersionedLibrary
from fusion.errors import ExecutionError
from fusion.placing.experiment import OpeningExperiment
from tuning.measuring_session import MeasuringSession

if TYPE_CHECKING:
    from tvm import relax


Asked = TypeVar("Asked", bound=RegionLibrary)


@dataclass
class _OpensApart(Generic[Asked]):
    """What a library of either kind is: a region that ends the process which opens it, or does not come back, ends
    nothing else.

    Attributes:
        name: By which the process that measures finds it.
        library: What runs regions.
        session: Opens them.
        folder: For files.
    """

    name: str
    library: Asked
    session: MeasuringSession
    folder: Path
    _broken: str = field(default="", init=False)

    @property
    def version(self) -> str:
        """See `GraphLibrary`."""
        return self.library.version

    def export(self, function: relax.Function) -> bytes:
        """See `GraphLibrary`."""
        return self.library.export(function)

    def open(self, data: bytes, threads: int) -> Open:
        """See `GraphLibrary`: this process opens the region when it is called, which only a test of it does.

        Raises:
            ExecutionError: It cannot be opened; where the process that tried has ended, no other is tried.
        """
        if self._broken:
            raise ExecutionError(self._broken)
        path = self.folder / f"region of {self.name}"
        path.write_bytes(data)
        results = self.session.run(OpeningExperiment(self.name, str(path), threads))
        if results.ended:
            self._broken = f"it crashed or hung while it opened a region: {results.failure}"
        if results.failure:
            raise ExecutionError(self._broken or f"it opens no such region: {results.failure}")

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


def opens_apart(name: str, library: RegionLibrary, session: MeasuringSession, folder: Path) -> RegionLibrary:
    """Return a library whose regions `session` opens first, which has a `folder` for files."""
    if isinstance(library, VersionedLibrary):
        return _PartsApart(name, library, session, folder)
    return _RegionsApart(name, library, session, folder)
