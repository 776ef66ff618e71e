"""The backends by name: those that come with fusion, and what other packages register as entry points.

This is the only file that imports a backend; nothing is imported before it is asked for.
"""

from __future__ import annotations

import functools
from importlib import import_module
from importlib.metadata import entry_points

from backends.backend import Backend
from fusion.errors import TargetError

GROUP = "fusion.backends"
"""Of the entry points: each names an object that is a `Backend`."""
_OWN = {"cpu": "backends.cpu.backend"}
"""Modules whose `BACKEND` is one."""


@functools.cache
def backends() -> dict[str, Backend]:
    """Return all backends by name, fusion's own first."""
    own = {name: import_module(module).BACKEND for name, module in _OWN.items()}
    return {**own, **{entry.name: entry.load() for entry in entry_points(group=GROUP) if entry.name not in own}}


def backend_for(kind: str) -> Backend:
    """Return the backend that writes kernels for targets of `kind`.

    Raises:
        TargetError: There is none.
    """
    for backend in backends().values():
        if kind in backend.kinds:
            return backend
    raise TargetError(f"target kind {kind!r} is not available", hint='use "llvm" or "llvm -mcpu=NAME"')
