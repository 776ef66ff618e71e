"""Finds oneDNN's shared library and those it needs in the wheels that brought them, and loads them, in `lib/` of an
environment, where no linker looks."""

from __future__ import annotations

import ctypes
import os
from importlib.metadata import PackageNotFoundError, distribution

WHEEL = "onednn-cpu-iomp"
"""Of oneDNN 3.2, the last for CPUs without a SYCL runtime: `onednn` (3.13) fills 2 GB with one, and finds a CPU only by
OpenCL, whose drivers variables of the environment name. The wheels for GNU's OpenMP and for TBB take as long; their
threads spin for 5 and 1 ms after a call (Emerald Rapids, 2 CPUs), which no function of theirs ends."""
_PARTS = (
    ("intel-cmplr-lib-rt", "libintlc.so.5"),
    ("intel-cmplr-lib-rt", "libimf.so"),
    ("intel-cmplr-lib-rt", "libirng.so"),
    ("intel-cmplr-lib-rt", "libsvml.so"),
    ("intel-openmp", "libiomp5.so"),
    (WHEEL, "libdnnl.so.3"),
)
"""By the wheel that has it, in an order in which each finds what it needs."""


def version() -> str:
    """Return that of `WHEEL`, and behind it those of the wheels that it needs, with their names.

    Raises:
        PackageNotFoundError: One of the wheels is not installed.
    """
    needed = dict.fromkeys(wheel for wheel, _ in _PARTS if wheel != WHEEL)
    return f"{distribution(WHEEL).version} ({', '.join(f'{each} {distribution(each).version}' for each in needed)})"


def load_libraries() -> tuple[ctypes.CDLL, ctypes.CDLL]:
    """Return oneDNN and the OpenMP that runs its loops.

    Raises:
        PackageNotFoundError: One of the wheels is not installed.
        OSError: A file of theirs is missing, or cannot be loaded.
    """
    *_, openmp, dnnl = [_load(wheel, name) for wheel, name in _PARTS]
    return dnnl, openmp


def _load(wheel: str, name: str) -> ctypes.CDLL:
    """Return a library; that of somebody else, where the process has one: a second OpenMP ends the process."""
    try:
        return ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        paths = (file.locate() for file in distribution(wheel).files or () if file.name == name)
        path = next(paths, None)
        if path is None:
            raise PackageNotFoundError(wheel) from None
        return ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
