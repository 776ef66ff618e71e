"""Runs CUDA C on the CPU: g++ compiles it behind `cuda_emulator.h`, and what its threads do to memory is counted."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from backends.cuda.codegen.generate import CudaKernel

HEADER = Path(__file__).with_name("cuda_emulator.h")
COMPILER = shutil.which("g++")
WHY_NOT = "" if COMPILER else "there is no g++"
ORDERS = (0, 1, 2, 3)
"""Of threads and blocks: first to last, last to first, and two at random."""
_GUARD = 4096
"""Bytes around each array that belong to no buffer."""


class EmulatedError(Exception):
    """What a kernel did that no device allows, or that differs between orders of its threads."""


class Counts(ctypes.Structure):
    """What the accesses of a launch add up to: as `Counts` of the header."""

    _fields_ = [
        (name, ctypes.c_int64)
        for name in (
            "load_bytes", "load_sectors", "store_bytes", "store_sectors",
            "shared_requests", "shared_passes", "worst_conflict", "wide_bytes", "barriers", "shuffles",
        )
    ]  # fmt: skip

    @property
    def sector_share(self) -> float:
        """Bytes that were asked for, of those of the sectors that they lie in."""
        return (self.load_bytes + self.store_bytes) / (32 * (self.load_sectors + self.store_sectors))


@dataclass(frozen=True)
class Emulated:
    """What a launch left behind.

    Attributes:
        arrays: By name of the parameter, as the kernel left them.
        counts: Of the last order.
    """

    arrays: Mapping[str, np.ndarray]
    counts: Counts


def emulate(kernel: CudaKernel, arrays: Mapping[str, np.ndarray], orders: tuple[int, ...] = ORDERS) -> Emulated:
    """Return what the kernel makes of `arrays`, which has one of each parameter; they are left as they are.

    Raises:
        EmulatedError: The emulator found an error, or another order of threads another result.
    """
    library = _library(_unit(kernel))
    first: dict[str, np.ndarray] | None = None
    counts = Counts()
    for order in orders:
        copies = {name: _Guarded.of(arrays[name]) for name in kernel.parameters}
        pointers = (ctypes.c_void_p * len(copies))(*(each.address for each in copies.values()))
        sizes = (ctypes.c_int64 * len(copies))(*(each.array.nbytes for each in copies.values()))
        counts = Counts()
        error = library.run(pointers, sizes, kernel.blocks, kernel.threads, order, ctypes.byref(counts)).decode()
        if error:
            raise EmulatedError(f"{error} (order {order})")
        results = {name: each.array.copy() for name, each in copies.items()}
        if first is None:
            first = results
        for name, result in results.items():
            if not np.array_equal(first[name], result, equal_nan=result.dtype.kind == "f"):
                raise EmulatedError(f"{name} differs between orders of threads (order {order})")
    assert first is not None
    return Emulated(first, counts)


@dataclass(frozen=True)
class _Guarded:
    """A copy of an array with memory around it that the kernel may not touch."""

    memory: np.ndarray
    array: np.ndarray

    @classmethod
    def of(cls, array: np.ndarray) -> _Guarded:
        memory = np.full(array.nbytes + 2 * _GUARD + 256, 0xFF, np.uint8)
        begin = (-memory.ctypes.data) % 256 + _GUARD
        view = memory[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
        view[...] = array
        return cls(memory, view)

    @property
    def address(self) -> int:
        return self.array.ctypes.data


def _unit(kernel: CudaKernel) -> str:
    """Return the source of a library whose `run` launches the kernel."""
    count = len(kernel.parameters)
    types = kernel.source[kernel.source.index(kernel.symbol + "(") :].split("(", 1)[1].split(")", 1)[0].split(",")
    names = [type_.split("__restrict__")[0] for type_ in types]
    locals_ = " ".join(f"const auto p{at} = reinterpret_cast<{name}>(pointers[{at}]);" for at, name in enumerate(names))
    values = ", ".join(f"p{at}" for at in range(count))
    return f"""\
#include "{HEADER}"
{kernel.source}
extern "C" __attribute__((visibility("default"))) UNSEEN const char* run(
    void** pointers, int64_t* sizes, unsigned blocks, unsigned threads, int order, emulator::Counts* counts) {{
  emulator::buffers.clear();
  for (int at = 0; at < {count}; ++at) {{
    const auto begin = reinterpret_cast<uintptr_t>(pointers[at]);
    emulator::buffers.push_back({{begin, begin + static_cast<uintptr_t>(sizes[at])}});
  }}
  const auto launched = [=]() UNSEEN {{
    {locals_}
    emulator::busy = false;
    {kernel.symbol}({values});
  }};
  return emulator::launch(launched, blocks, threads, order, counts);
}}
"""


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="emulated")


@functools.cache
def _library(unit: str) -> ctypes.CDLL:
    """Return the compiled unit. It is not linked with the sanitizer's library: the header has its functions."""
    stem = Path(_folder().name) / hashlib.sha256(unit.encode()).hexdigest()[:16]
    source, library = stem.with_suffix(".cc"), stem.with_suffix(".so")
    source.write_text(unit)
    assert COMPILER is not None
    # Structs of four floats stay whole (-fno-tree-sra), so that their loads are seen as one.
    flags = ["-std=c++17", "-O1", "-fPIC", "-fno-tree-sra", "-fno-strict-aliasing", "-ffp-contract=off"]
    flags += ["-fno-gnu-unique", "-fvisibility=hidden", "-w"]
    hooks = ["-fsanitize=thread", "--param=tsan-instrument-func-entry-exit=0"]
    _run([COMPILER, *flags, *hooks, "-c", str(source), "-o", str(stem.with_suffix(".o"))])
    _run([COMPILER, "-shared", str(stem.with_suffix(".o")), "-o", str(library)])
    loaded = ctypes.CDLL(str(library))
    loaded.run.restype = ctypes.c_char_p
    return loaded


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
