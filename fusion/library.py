"""Machine code in this process: its functions, and the threads that its kernels run on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fusion import pool, threads
from fusion.runtime import Module, tvm_ffi


@dataclass(frozen=True)
class LoadedLibrary:
    """Compiled functions, by name, ready to run.

    Attributes:
        functions: The module they are in.
        pooled: Whether its kernels run on the pool of the process and not on TVM's.
    """

    functions: Module
    pooled: bool

    def use_threads(self, count: int) -> None:
        """Make kernels of this library that the calling thread starts run on up to `count` threads.

        Raises:
            OptionError: The system does not let TVM's pool have so many.
        """
        (pool.use if self.pooled else threads.use_threads)(count)


def open_library(path: Path) -> LoadedLibrary:
    """Return the shared library at `path`, which stays in the process; what cannot be loaded raises TVM's errors, of
    several classes."""
    return LoadedLibrary(tvm_ffi.load_module(str(path)), pool.connect(path))
