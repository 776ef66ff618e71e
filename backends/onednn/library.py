"""oneDNN as a `Library`; to open a part of a model takes nothing of the compiler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from backends.backend import Open
from backends.onednn.wheels import version

if TYPE_CHECKING:
    from tvm import relax


@dataclass(frozen=True)
class OneDnnOperators:
    """A `Library`."""

    @property
    def version(self) -> str:
        """Of the wheels."""
        return version()

    @cached_property
    def patterns(self) -> Sequence[relax.transform.FusionPattern]:
        """See `Library`."""
        from backends.onednn.patterns import make_patterns

        return make_patterns()

    def export(self, function: relax.Function) -> bytes:
        """See `Library`."""
        from backends.onednn.chain import CallChain
        from backends.onednn.read import read_operation

        operation, constants = read_operation(CallChain.of(function))
        return operation.serialize(constants)

    def open(self, data: bytes, threads: int) -> Open:
        """See `Library`."""
        from backends.onednn.api import onednn
        from backends.onednn.executable import Executable
        from backends.onednn.operation import deserialize

        return Executable(onednn(), *deserialize(data), threads)


LIBRARY = OneDnnOperators()
