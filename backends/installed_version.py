"""Versions of packages that are not imported for it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from importlib import import_module


def installed_version(package: str) -> str:
    """Return the version of what an import of `package` would find. The import takes up to 0.2 s, and where it crashes
    the process ends: only of what a wheel of another name brought it is needed.

    Raises:
        ModuleNotFoundError: There is no such package.
        Exception: Whatever its import raises.
    """
    if importlib.util.find_spec(package) is None:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return str(import_module(package).__version__)
