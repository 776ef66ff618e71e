"""The backends by name: those that come with fusion, and what other packages register as entry points.

This is the only file that imports a backend; nothing is imported before it is asked for.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

from backends.backend import Backend, DeviceLibrary, GraphLibrary, Library
from fusion.errors import NotInstalledError, TargetError
from fusion.options import FALLBACK
from fusion.system.first_imports import importing

if TYPE_CHECKING:
    from backends.backend import ModelRunner
    from backends.device_run import DeviceRuntime

_log = logging.getLogger("fusion.backends")

GROUP = "fusion.backends"
"""Of the entry points: each names an object that is a `Backend`, a `Library` or a `GraphLibrary`."""
_OWN = {"cpu": ("llvm", "backends.cpu.backend"), "cuda": ("cuda", "backends.cuda.backend")}
"""The kind of targets of each, and the module whose `BACKEND` it is."""
_LIBRARIES = {
    "onednn": "backends.onednn.library",
    "openvino": "backends.openvino.library",
    FALLBACK: "backends.onnxruntime.library",
    "tvm": "backends.tvm.library",
    "cublaslt": "backends.cuda.libraries.cublaslt.library",
    "cudnn": "backends.cuda.libraries.cudnn.library",
}
"""Modules whose `LIBRARY` runs parts of a graph by the packages of this name, or kernels of a device."""
_PACKAGES = {
    "onednn": ("onednn-cpu-iomp", "intel-openmp", "intel-cmplr-lib-rt"),
    "tvm": ("apache-tvm",),
    "cublaslt": ("nvidia-cublas-cu12",),
    "cudnn": ("nvidia-cudnn-cu12",),
}
"""Which those are, where the name is another."""
_RUNTIMES = {"cuda": "backends.cuda.runtime.runtime"}
"""By kind of targets whose code no CPU runs, the modules whose `RUNTIME` does, without the compiler."""
_MODEL_RUNNER = "backends.onnxruntime.backend"
"""The module whose `BACKEND` runs what no kernels are written for."""

_failed: dict[str, str] = {}
"""How the import of what another package registers last failed, by name."""


def others() -> dict[str, EntryPoint]:
    """Return what other packages register, by name; nothing of it is imported. Looking takes 2 to 7 ms."""
    return {entry.name: entry for entry in entry_points(group=GROUP) if entry.name not in (*_OWN, *_LIBRARIES)}


@functools.cache
def _own(kind: str) -> Backend | None:
    """Return fusion's own backend for targets of `kind`; no other is imported."""
    module = next((module for own, module in _OWN.values() if own == kind), None)
    if module is None:
        return None
    with importing():
        found: Backend = import_module(module).BACKEND
        return found


@functools.cache
def other(name: str) -> Any:
    """Return what another package registers by this name; None where nothing does, or it cannot be imported."""
    entry = others().get(name)
    if entry is None:
        return None
    _failed.pop(name, None)
    try:
        return entry.load()
    except Exception as error:  # whatever a package of somebody else raises
        _failed[name] = f"{type(error).__name__}: {error}"
        _log.warning("the backend %r (%s) is left out: %s", name, entry.value, error)
    return None


def generators() -> dict[str, str]:
    """Return the kinds of targets that fusion's own backends write kernels for, by the names of these."""
    return {name: kind for name, (kind, _) in _OWN.items()}


def kinds() -> tuple[str, ...]:
    """Return the kinds of targets that fusion's own backends write kernels for."""
    return tuple(kind for kind, _ in _OWN.values())


def backend_for(kind: str, others: Iterable[str] = ()) -> Backend:
    """Return the backend that writes kernels for targets of `kind`: fusion's own, or one of `others` by their names.

    Raises:
        TargetError: There is none.
    """
    own = _own(kind)
    if own is not None:
        return own
    for backend in map(other, others):
        if isinstance(backend, Backend) and kind in backend.kinds:
            return backend
    raise TargetError(
        f"target kind {kind!r} is not available", hint='use "llvm", "llvm -mcpu=NAME" or "cuda -arch=sm_80"'
    )


def device_runtimes() -> dict[str, DeviceRuntime]:
    """Return what runs code of devices on this machine, by the kind of target; nothing of the compiler is imported."""
    return {kind: import_module(module).RUNTIME for kind, module in _RUNTIMES.items()}


def device_runtime(kind: str) -> DeviceRuntime:
    """Return what runs code of targets of `kind`.

    Raises:
        TargetError: Nothing does.
    """
    if kind not in _RUNTIMES:
        raise TargetError(f"nothing here runs code for targets of the kind {kind!r}", hint="update fusion")
    runtime: DeviceRuntime = import_module(_RUNTIMES[kind]).RUNTIME
    return runtime


def libraries() -> tuple[str, ...]:
    """Return the names of all that may run parts of a graph, installed or not."""
    return (*_LIBRARIES, *others())


def library(name: str) -> Library | GraphLibrary | DeviceLibrary:
    """Return the library of this name.

    Raises:
        NotInstalledError: There is none, or it cannot be imported.
    """
    own = _LIBRARIES.get(name)
    found: Any = other(name) if own is None else import_module(own).LIBRARY
    packages = _PACKAGES.get(name, (name,))
    try:
        # what of ours is there tells its version, without anything of the compiler; `isinstance` asks for patterns
        if found.version if own else isinstance(found, Library) or (isinstance(found, GraphLibrary) and found.version):
            known: Library | GraphLibrary | DeviceLibrary = found
            return known
    except Exception as error:  # whatever a package of somebody else raises; `isinstance` asks for the version too
        missing = isinstance(error, ModuleNotFoundError) and error.name in packages
        raise NotInstalledError(
            f"the backend {name!r} {'is not installed' if missing else 'cannot be imported'}",
            why="" if missing else f"{type(error).__name__}: {error}",
            hint=f"pip install {' '.join(packages)}",
        ) from error
    entry = others().get(name)
    if entry is None:
        raise NotInstalledError(
            f"the backend {name!r} is not installed", hint=f"install the package that registers it as {GROUP!r}"
        )
    hint = f"update the package that registers {entry.value!r}, or remove it"
    if found is None and name in _failed:
        raise NotInstalledError(f"the backend {name!r} cannot be imported", why=_failed[name], hint=hint)
    raise NotInstalledError(f"the backend {name!r} is no library", why=_why_no_library(found), hint=hint)


def _why_no_library(found: object) -> str:
    """Return what an object lacks."""
    kinds = {
        "Library": ("patterns", "export", "open"),
        "GraphLibrary": ("version", "why_not_taken", "export", "open"),
    }
    missing = {kind: [each for each in names if not hasattr(found, each)] for kind, names in kinds.items()}
    lacks = [f"{', '.join(names)} of a {kind}" for kind, names in missing.items() if names]
    if len(lacks) < len(kinds):
        return "its version is empty"
    return f"{type(found).__name__} lacks {', and '.join(lacks)}"


def host_library(name: str) -> Library | GraphLibrary:
    """Return the library of this name, which runs parts of a graph on the host.

    Raises:
        NotInstalledError: There is none, it cannot be imported, or it runs kernels of a device.
    """
    found = library(name)
    if isinstance(found, DeviceLibrary):
        raise NotInstalledError(f"the backend {name!r} opens no part of a graph", why="it runs kernels of devices")
    return found


def model_runner() -> ModelRunner:
    """Return what runs the parts of models that no kernels are written for.

    Raises:
        ModuleNotFoundError: Its library is not installed.
    """
    runner: ModelRunner = import_module(_MODEL_RUNNER).BACKEND
    return runner
