"""Where in the code something stands."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from types import ModuleType


def file_of(package: ModuleType, value: object) -> str:
    """Return the file of `package` that defines `value`."""
    names = [found.name for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")]
    (name,) = (name for name in names if any(each is value for each in vars(import_module(name)).values()))
    return f"{name.replace('.', '/')}.py"
