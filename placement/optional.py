"""Packages of the extra `devices`, which the simpler methods do without."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import Any

from fusion.errors import NotInstalledError

_USES = {"highspy": "integer programs are solved by HiGHS", "networkx": "large graphs are split by networkx"}


def optional(name: str) -> Any:
    """Return the module `name`.

    Raises:
        NotInstalledError: It is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise NotInstalledError(
            f"the package {name} is not installed here",
            why=f"{_USES[name]}: {error}",
            hint="pip install 'fusion[devices]'",
        ) from error


def has_optional() -> bool:
    """Return whether all of them are installed."""
    return all(find_spec(name) for name in _USES)
