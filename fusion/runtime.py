"""TVM's runtime without its compiler: 56 MB and 0.5 s to import, where `import tvm` takes 220 MB and 1.8 s.

Everything that runs a module imports `tvm_ffi` from here; what compiles imports `tvm` after this.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from fusion.errors import NotInstalledError


def import_compiler() -> ModuleType:
    """Return `tvm`, imported without PyTorch.

    Raises:
        NotInstalledError: There is only its runtime. TVM imports all the same then, and fails at every use.
    """
    tvm = _import_tvm()
    if tvm_ffi.get_global_func("target.Target", allow_missing=True) is None:
        raise NotInstalledError(
            "the compiler is not installed",
            why="TVM's runtime is here without libtvm_compiler: this environment runs saved modules only",
            hint="compile where it is installed, save, and load the file here; or install all dependencies of fusion, "
            f"and TVM anew: pip install --force-reinstall apache-tvm=={TVM_VERSION}",
        )
    return tvm


def _import_tvm() -> ModuleType:
    """Import TVM: in the first thread that does so with a list of names for all of its tables, and without the hooks of
    its backends for GPUs."""
    with _first:
        if "tvm" not in sys.modules:
            with _listing_names_once(), _without_device_backends():
                return _import_without_torch("tvm")
    return _import_without_torch("tvm")


_first = threading.Lock()


@contextmanager
def _listing_names_once() -> Iterator[None]:
    """Import TVM inside without its asking for the names of all global functions where no function was added.

    Each of its 51 tables of functions asks for 2,000 names one by one: 0.1 s of the 0.65 that importing it took.
    """
    registry = tvm_ffi.registry
    ask, names = registry.list_global_func_names, list[str]()

    def list_names() -> list[str]:
        count = registry.get_global_func("ffi.FunctionListGlobalNamesFunctor")()(-1)
        if count != len(names):
            names[:] = ask()
        return [*names]

    registry.list_global_func_names = list_names
    try:
        yield
    finally:
        registry.list_global_func_names = ask


_AUTOLOAD = "tvm.backend._autoload_backends"


@contextmanager
def _without_device_backends() -> Iterator[None]:
    """Import TVM inside without what it has in Python for GPUs and the like, unless `TVM_DEVICE_BACKEND_AUTOLOAD` asks
    for that: 240 modules, a quarter of the time that importing TVM and the compiler takes.

    `tvm.backend.load` loads one of them later. The module that TVM asks to load all is one that loads none meanwhile:
    to set the variable would reach processes that other threads start.
    """
    if "TVM_DEVICE_BACKEND_AUTOLOAD" in os.environ or _AUTOLOAD in sys.modules:
        yield
        return
    nothing = ModuleType(_AUTOLOAD)
    nothing.__dict__["_autoload_backends"] = lambda: None
    sys.modules[_AUTOLOAD] = nothing
    try:
        yield
    finally:
        sys.modules.pop(_AUTOLOAD, None)


def _import_without_torch(name: str) -> ModuleType:
    """Import tvm or tvm_ffi, which import PyTorch wherever they find it: 480 MB and 3 s that nothing here uses.

    A process that has imported PyTorch already is left as it is, PyTorch can be imported later, and other threads can
    import it meanwhile.
    """
    if "torch" in sys.modules or name in sys.modules:
        return importlib.import_module(name)
    with _without_torch:
        return importlib.import_module(name)


class _WithoutTorch(threading.local, MetaPathFinder):
    """Finds no PyTorch in the thread that is inside `with`; every other thread finds it."""

    hidden = False

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        """Leave every module to the finders behind this one, or say that there is none."""
        if self.hidden and fullname.partition(".")[0] == "torch":
            raise ModuleNotFoundError(f"{fullname} is not needed here", name=fullname)

    def __enter__(self) -> None:
        self.hidden = True

    def __exit__(self, *_: object) -> None:
        self.hidden = False


_without_torch = _WithoutTorch()
# It stays: who walks this list in another thread while an entry is taken out skips the next.
sys.meta_path.insert(0, _without_torch)


def _load_libraries() -> None:
    """Make the runtime's functions known to tvm_ffi; importing tvm later finds the same libraries loaded."""
    if "tvm" in sys.modules:
        return
    spec = importlib.util.find_spec("tvm")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError("apache-tvm is not installed")
    folder = Path(next(iter(spec.submodule_search_locations))) / "lib"
    suffix = {"darwin": "dylib", "win32": "dll"}.get(sys.platform, "so")
    for name in ("tvm_runtime", "tvm_runtime_extra"):
        ctypes.CDLL(str(folder / f"lib{name}.{suffix}"), ctypes.RTLD_GLOBAL)


tvm_ffi = _import_without_torch("tvm_ffi")
_load_libraries()

Tensor = tvm_ffi.Tensor
Module = tvm_ffi.Module
TVM_VERSION = importlib.metadata.version("apache-tvm")
FFI_VERSION = importlib.metadata.version("apache-tvm-ffi")
