"""TVM's own lowering as a `GraphLibrary`. To open a region compiles it: what is saved is the function."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np

from backends.backend import Open

if TYPE_CHECKING:
    from tvm import relax

_PACKAGE = "apache-tvm"
_ENTRY = "main"


@dataclass(frozen=True)
class TvmRegions:
    """A `GraphLibrary`."""

    @property
    def version(self) -> str:
        """See `GraphLibrary`."""
        return importlib.metadata.version(_PACKAGE)

    def why_not_taken(self, call: relax.Call) -> str:
        """See `GraphLibrary`."""
        from backends.tvm.build import why_not_lowered

        return why_not_lowered(call)

    def export(self, function: relax.Function) -> bytes:
        """See `GraphLibrary`."""
        import tvm

        text: str = tvm.ir.save_json(tvm.IRModule({_ENTRY: function.with_attr("global_symbol", _ENTRY)}))
        return text.encode()

    def open(self, data: bytes, threads: int) -> Open:
        """See `GraphLibrary`."""
        import tvm

        from backends.tvm.build import build

        return _Machines(build(tvm.ir.load_json(data.decode())))


class _Machines:
    """Runs an executable; each call that runs at a time has a virtual machine to itself."""

    def __init__(self, executable: Any) -> None:
        self._executable = executable
        self._idle: SimpleQueue[Any] = SimpleQueue()

    def __call__(self, arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        import tvm
        from tvm import relax

        try:
            machine = self._idle.get_nowait()
        except Empty:
            machine = relax.VirtualMachine(self._executable, tvm.cpu())
        found = machine[_ENTRY](*map(tvm.runtime.tensor, arrays))
        results = [found] if isinstance(found, tvm.runtime.Tensor) else list(found)
        self._idle.put(machine)
        return [result.numpy() for result in results]


LIBRARY = TvmRegions()
