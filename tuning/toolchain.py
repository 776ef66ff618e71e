"""What makes machine code of candidates: given to this package, as it knows neither modules nor linkers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from tvm import tirx


class Toolchain(Protocol):
    """A compiler and a linker for this machine."""

    def refusal(self) -> str:
        """Return why there is none; "" where there is."""
        ...

    def compile(self, kernels: Mapping[str, tirx.PrimFunc], path: Path) -> None:
        """Write the code of `kernels`, by the names they are to have, as an object file."""
        ...

    def link(self, objects: Sequence[Path], path: Path) -> None:
        """Write a shared library of object files."""
        ...
