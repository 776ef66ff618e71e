"""Networks that fusion compiles when the pipeline first needs them, and keeps for the comparison."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

import fusion
from bench.demo.reader import Network
from bench.peers.engine import Compiled

# The one input of each of the three networks.
INPUT = "x"


class Compiler:
    """Compiles a network once for each shape it meets, and saves it into a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._modules: dict[tuple[Path, tuple[int, ...]], fusion.CompiledModule] = {}
        self._seconds: dict[tuple[Path, tuple[int, ...]], float] = {}

    def network(self, path: Path) -> Network:
        """Return the function that runs the ONNX file at `path`.

        Raises:
            FusionError: When it is called, and the model cannot be compiled.
        """

        def run(data: np.ndarray) -> np.ndarray:
            (output,) = self._module(path, data.shape)(data)
            return output

        return run

    def saved(self, path: Path, shape: tuple[int, ...]) -> Compiled:
        """Return what is known of a module that has run on an input of `shape`, saved if there is a linker."""
        # Imports TVM, which has compiled the module in this process already.
        from fusion.module import linker

        if linker.find_linker() is None:
            return Compiled(None, self._seconds[path, shape])
        file = self._folder / f"{path.stem}-{'x'.join(map(str, shape))}.fusion"
        self._modules[path, shape].save(str(file))
        return Compiled(file, self._seconds[path, shape])

    def _module(self, path: Path, shape: tuple[int, ...]) -> fusion.CompiledModule:
        if (path, shape) not in self._modules:
            started = time.perf_counter()
            self._modules[path, shape] = fusion.compile(str(path), shapes={INPUT: shape}, cache=False)
            self._seconds[path, shape] = time.perf_counter() - started
        return self._modules[path, shape]
