"""A library as an entry of the registry; to ask whether it is there loads nothing."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version


@dataclass(frozen=True)
class PackagedLibrary:
    """A `DeviceLibrary` that comes as a package from PyPI.

    Attributes:
        packages: Their names, any of which has it; the first is the one to install.
    """

    packages: tuple[str, ...]
    kinds: tuple[str, ...] = ("cuda",)

    @property
    def version(self) -> str:
        """Of the first package that is installed.

        Raises:
            PackageNotFoundError: None is.
        """
        for package in self.packages:
            with contextlib.suppress(PackageNotFoundError):
                return version(package)
        raise PackageNotFoundError(self.packages[0])
