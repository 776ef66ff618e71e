"""Runs CUDA C on the CPU: g++ compiles it behind `cuda_emulator.h`; `emulator.cc` counts what threads do to memory."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from backends.cuda.codegen.generate import CudaKernel

HEADER = Path(__file__).with_name("cuda_emulator.h")
EMULATOR = Path(__file__).with_name("emulator.cc")
COMPILER = shutil.which("g++")
WHY_NOT = "" if COMPILER else "there is no g++"
ORDERS = (0, 1, 2, 3)
"""Of threads and blocks: first to last, last to first, and two at random."""
_GUARD = 4096
"""Bytes around each array that belong to no buffer."""


class EmulatedError(Exception):
    """What a kernel did that no device allows, or that differs between orders of its threads."""


class Counts(ctypes.Structure):
    """What the accesses of a launch add up to: as `Counts` of the emulator."""

    _fields_ = [
        (name, ctypes.c_int64)
        for name in (
            "load_bytes", "load_sectors", "store_bytes", "store_sectors",
            "shared_requests", "shared_passes", "worst_conflict", "wide_bytes", "barriers", "shuffles", "products",
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


def emulate(
    kernel: CudaKernel, arrays: Mapping[str, np.ndarray], orders: tuple[int, ...] = ORDERS, variant: int = 0,
    most_blocks: int | None = None,
) -> Emulated:  # fmt: skip
    """Return what the kernel makes of `arrays`, which has one of each parameter; they are left as they are.

    Args:
        variant: What `emulated_variant` returns, where the text asks for it: several kernels that are compiled once.
        most_blocks: That are run, the first of each order; all if None. Those of a random order say what all ask for.

    Raises:
        EmulatedError: The emulator found an error, or another order of threads another result.
    """
    library = _library(_unit(kernel))
    launched = _Kernel.in_dll(library, "emulated_kernel")
    first: dict[str, np.ndarray] | None = None
    counts = Counts()
    for order in orders:
        copies = {name: _Guarded.of(arrays[name]) for name in kernel.parameters}
        pointers = (ctypes.c_void_p * len(copies))(*(each.address for each in copies.values()))
        sizes = (ctypes.c_int64 * len(copies))(*(each.array.nbytes for each in copies.values()))
        launch = (len(copies), kernel.blocks, kernel.threads, order, most_blocks or kernel.blocks)
        counted = ctypes.byref(counts) if order == orders[-1] else None
        error = _emulator().emulated_run(launched, variant, pointers, sizes, *launch, counted)
        if error:
            raise EmulatedError(f"{error.decode()} (order {order})")
        results = {name: each.array.copy() for name, each in copies.items()}
        if first is None:
            first = results
        for name, result in results.items():
            if not _is_same(first[name], result):
                raise EmulatedError(f"{name} differs between orders of threads (order {order})")
    assert first is not None
    return Emulated(first, counts)


def _is_same(first: np.ndarray, other: np.ndarray) -> bool:
    """Return whether all elements are the same; of bfloat16, which is no float to NumPy, all bits."""
    if first.dtype.kind == "f":
        return np.array_equal(first, other, equal_nan=True)
    return first.tobytes() == other.tobytes()


class _Kernel(ctypes.Structure):
    """What a library has of a kernel: as `Kernel` of the emulator."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("thread", "shared_begin", "shared_end")]


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
    """Return the source of the kernel and of what the emulator calls for each of its threads."""
    declared = kernel.source[kernel.source.index(kernel.symbol + "(") :].split("(", 1)[1].split(")", 1)[0].split(",")
    types = [parameter.split("__restrict__")[0] for parameter in declared]
    values = ", ".join(f"({type_})arguments[{at}]" for at, type_ in enumerate(types))
    dynamic = r"extern (__shared__ __align__\(\d+\) uchar \w+)\[\];"
    source = re.sub(dynamic, rf"\1[{kernel.shared_bytes}];", kernel.source)
    # g++ would have a static array of a class with constructors made when it is reached first.
    narrow = r"__shared__ (alignas\(\d+\)) nv_bfloat16 (\w+)(\[\d+\]);"
    source = re.sub(narrow, r"__shared__ \1 short \2_bits\3; nv_bfloat16* const \2 = (nv_bfloat16*)\2_bits;", source)
    source = re.sub(r"(for \(int (\w+) = 0; \2 < [^;{}]+; \+\+\2\) \{)", r"\1 const EmulatedTurn emulated{\2};", source)
    return f"""\
{source}
UNSEEN static void thread(void** arguments) {{ {kernel.symbol}({values}); }}
extern "C" {{
extern char __start_emulated_shared[] __attribute__((weak)), __stop_emulated_shared[] __attribute__((weak));
__attribute__((visibility("default"))) EmulatedKernel emulated_kernel = {{
  thread, __start_emulated_shared, __stop_emulated_shared
}};
}}
"""


def kernel_library(kernel: CudaKernel) -> tuple[str, str]:
    """Return where the code of a kernel is for the CPU, and that of the emulator which runs it."""
    return str(_library(_unit(kernel))._name), str(_emulator()._name)


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="emulated")


@functools.cache
def _emulator() -> ctypes.CDLL:
    """Return the emulator, of which libraries of kernels take what they call: g++ takes many times as long for it."""
    made = Path(_folder().name) / "emulator.so"
    _compile("-O1", str(EMULATOR), "-o", str(made))
    loaded = ctypes.CDLL(str(made), ctypes.RTLD_GLOBAL)
    loaded.emulated_run.restype = ctypes.c_char_p
    loaded.emulated_run.argtypes = [
        _Kernel, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int] * 5, ctypes.c_void_p
    ]  # fmt: skip
    return loaded


# Structs of four floats stay whole (-fno-tree-sra), so that their loads are seen as one; -O1 takes longer.
_SEEN = ("-Og", "-fno-tree-sra", "-fsanitize=thread", "--param=tsan-instrument-func-entry-exit=0")
_OF_KERNELS = (*_SEEN, "-nostdlib", "-nostdinc++", "-fvisibility=hidden", "-D__CUDACC_RTC__", "-w")


@functools.cache
def _header() -> Path:
    """Return the header with what g++ has made of it beside it: to read it took as long as to compile a kernel."""
    header = Path(_folder().name) / HEADER.name
    shutil.copy(HEADER, header)
    _compile(*_OF_KERNELS, "-x", "c++-header", str(header), "-o", f"{header}.gch")
    return header


@functools.cache
def _library(unit: str) -> ctypes.CDLL:
    """Return the compiled unit, without any library, the sanitizer's neither: the emulator has its functions."""
    stem = Path(_folder().name) / hashlib.sha256(unit.encode()).hexdigest()[:16]
    source, library = stem.with_suffix(".cc"), stem.with_suffix(".so")
    source.write_text(unit)
    _compile(*_OF_KERNELS, "-include", str(_header()), str(source), "-o", str(library))
    _emulator()
    return ctypes.CDLL(str(library))


def _compile(*arguments: str) -> None:
    assert COMPILER is not None
    flags = ["-std=c++17", "-shared", "-fPIC", "-fno-strict-aliasing", "-ffp-contract=off", "-fno-gnu-unique"]
    command = [COMPILER, *flags, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
