"""A subgraph that a library took, opened to run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from backends.backend import Open
from backends.registry import host_library
from backends.subgraphs import publish
from fusion.errors import ExecutionError
from fusion.runtime import Tensor
from fusion.tensors import as_numpy, as_tensor

_MADE_WITH = "install the version that the module was made with, or compile the model again"


@dataclass(frozen=True, eq=False)
class LibrarySubgraph:
    """What `publish` takes.

    Attributes:
        library: Name of who runs it.
        run: What that opened.
    """

    library: str
    run: Open

    def call(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        """Run it for compiled code.

        Raises:
            ExecutionError: The library fails.
        """
        try:
            return [as_tensor(array) for array in self.run([as_numpy(tensor) for tensor in tensors])]
        except Exception as error:  # whatever a package of somebody else raises
            raise ExecutionError(
                f"the backend {self.library!r} failed", why=f"{type(error).__name__}: {error}"
            ) from error


def open_subgraph(name: str, key: str, data: bytes, threads: int) -> LibrarySubgraph:
    """Return what the library `name` exported as `data`, which compiled code may call by `key` while that is held.

    Raises:
        NotInstalledError: The library is not installed.
        ExecutionError: It cannot open the data.
    """
    library = host_library(name)
    try:
        opened = LibrarySubgraph(name, library.open(data, threads))
    except MemoryError:
        raise
    except Exception as error:  # whatever a package of somebody else raises
        raise ExecutionError(
            f"the backend {name!r} cannot open its part of the model",
            why=f"{type(error).__name__}: {error}",
            hint=_MADE_WITH,
        ) from error
    publish(key, opened)
    return opened
