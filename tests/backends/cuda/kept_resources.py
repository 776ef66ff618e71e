"""What ptxas said of kernels, kept in a file by what it was told: equal kernels of several models are asked once."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tempfile
from dataclasses import astuple, dataclass, field
from pathlib import Path

from backends.cuda.codegen.generate import CudaKernel
from tests.backends.cuda.toolkit import PTXAS, Resources, resources_of


@dataclass
class KeptResources:
    """A folder with `resources.json`: numbers by a digest of the text, the architecture, and ptxas's version.

    Attributes:
        folder: Is made where it is missing.
    """

    folder: Path
    _known: dict[str, list[int]] = field(init=False)
    _version: str = field(init=False)

    def __post_init__(self) -> None:
        assert PTXAS is not None
        self.folder.mkdir(parents=True, exist_ok=True)
        self._known = json.loads(self._path.read_text()) if self._path.exists() else {}
        self._version = subprocess.run([PTXAS, "--version"], capture_output=True, text=True, check=True).stdout

    @property
    def _path(self) -> Path:
        return self.folder / "resources.json"

    def of(self, kernel: CudaKernel, arch: str) -> Resources:
        """Return what a kernel takes; several threads may ask."""
        text = kernel.source.replace(kernel.symbol, "kernel")
        key = hashlib.sha256("\0".join((text, arch, self._version)).encode()).hexdigest()
        if key not in self._known:
            with tempfile.TemporaryDirectory() as scratch:
                self._known[key] = list(astuple(resources_of(kernel, arch, Path(scratch))))
        return Resources(*self._known[key])

    def write(self) -> None:
        """Keep what is known, whole or not at all."""
        unfinished = self._path.with_suffix(f".{os.getpid()}")
        unfinished.write_text(json.dumps(self._known))
        unfinished.replace(self._path)
