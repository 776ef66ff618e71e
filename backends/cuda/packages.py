"""NVIDIA's packages from PyPI: where their files are."""

from __future__ import annotations

import importlib.util
from pathlib import Path


def find_in_package(name: str, pattern: str) -> str | None:
    """Return a file of the package `nvidia.NAME` from PyPI, which has no `__init__.py`; None without it."""
    try:
        spec = importlib.util.find_spec(f"nvidia.{name}")
    except ModuleNotFoundError:
        return None
    folders = spec.submodule_search_locations if spec else None
    return next((str(path) for folder in folders or () for path in sorted(Path(folder).glob(pattern))), None)
