"""cuBLASLt as an entry of the registry; to ask whether it is there loads nothing."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version

PACKAGE = "nvidia-cublas-cu12"


@dataclass(frozen=True)
class CublasLtProducts:
    """A `DeviceLibrary`."""

    kinds: tuple[str, ...] = ("cuda",)

    @property
    def version(self) -> str:
        """Of the package from PyPI.

        Raises:
            PackageNotFoundError: It is not installed.
        """
        return version(PACKAGE)


LIBRARY = CublasLtProducts()
