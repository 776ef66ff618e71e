"""The backends by name: those that come with fusion, and what other packages register as entry points.

This is the only file that imports a backend; nothing is imported before it is asked for.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Collection, Iterator
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from fusion.errors import TargetError

if TYPE_CHECKING:
    from backends.backend import Backend, ModelRunner

_log = logging.getLogger("fusion.backends")

GROUP = "fusion.backends"
"""Of the entry points: each names an object that is a `Backend`."""
_OWN = {"cpu": "backends.cpu.backend"}
"""Modules whose `BACKEND` is one."""
_MODEL_RUNNER = "backends.onnxruntime.backend"
"""The module whose `BACKEND` runs what no kernels are written for."""


@functools.cache
def backends() -> dict[str, Backend]:
    """Return all backends by name, fusion's own first."""
    own = {name: import_module(module).BACKEND for name, module in _OWN.items()}
    return {**own, **dict(_others(own))}


def _others(own: Collection[str]) -> Iterator[tuple[str, Backend]]:
    """Yield what other packages register under names that are free; one that cannot be imported is left out."""
    for entry in entry_points(group=GROUP):
        if entry.name not in own:
            try:
                yield entry.name, entry.load()
            except Exception as error:  # whatever a package of somebody else raises
                _log.warning("the backend %r (%s) is left out: %s", entry.name, entry.value, error)


def backend_for(kind: str) -> Backend:
    """Return the backend that writes kernels for targets of `kind`.

    Raises:
        TargetError: There is none.
    """
    for backend in backends().values():
        if kind in backend.kinds:
            return backend
    raise TargetError(f"target kind {kind!r} is not available", hint='use "llvm" or "llvm -mcpu=NAME"')


def model_runner() -> ModelRunner:
    """Return what runs the parts of models that no kernels are written for.

    Raises:
        ModuleNotFoundError: Its library is not installed.
    """
    runner: ModelRunner = import_module(_MODEL_RUNNER).BACKEND
    return runner
