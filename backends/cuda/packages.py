"""NVIDIA's packages from PyPI: where their files are."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from pathlib import Path

_SHARED = "cu13"
"""The folder that packages of CUDA 13 share; those of CUDA 12 have one each."""


def find_in_package(name: str, pattern: str) -> str | None:
    """Return a file of the package `nvidia.NAME` from PyPI, or of what those of CUDA 13 share; None without either."""
    folders = (folder for each in (name, _SHARED) for folder in _folders(f"nvidia.{each}"))
    return next((str(path) for folder in folders for path in sorted(Path(folder).glob(pattern))), None)


def _folders(package: str) -> Iterable[str]:
    """Return where a package lies, which has no `__init__.py`."""
    try:
        spec = importlib.util.find_spec(package)
    except ModuleNotFoundError:
        return ()
    return (spec.submodule_search_locations if spec else None) or ()
