"""oneDNN as a `GraphLibrary`; to open a region takes nothing of the compiler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from backends.backend import Open
from backends.onednn.wheels import version

if TYPE_CHECKING:
    from tvm import relax


@dataclass(frozen=True)
class OneDnnRegions:
    """A `GraphLibrary`."""

    @property
    def version(self) -> str:
        """Of the wheels."""
        return version()

    def why_not_taken(self, call: relax.Call) -> str:
        """See `GraphLibrary`."""
        from backends.onednn.region import why_not_taken

        return why_not_taken(call)

    def export(self, function: relax.Function) -> bytes:
        """See `GraphLibrary`."""
        from backends.onednn.region import read_region

        sequence, constants = read_region(function)
        return sequence.serialize(constants)

    def open(self, data: bytes, threads: int) -> Open:
        """See `GraphLibrary`."""
        from backends.onednn.api import onednn
        from backends.onednn.executable import Executable
        from backends.onednn.operation import deserialize

        return Executable(onednn(), *deserialize(data), threads)


LIBRARY = OneDnnRegions()
