"""NVRTC and ptxas, where they are installed: what the toolkit makes of CUDA C, without a driver or a device."""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from backends.cuda.codegen.generate import CudaKernel


def _in_package(name: str, pattern: str) -> str | None:
    """Return a file of the package `nvidia.NAME` from PyPI, which has no `__init__.py`; None without it."""
    try:
        spec = importlib.util.find_spec(f"nvidia.{name}")
    except ModuleNotFoundError:
        return None
    folders = spec.submodule_search_locations if spec else None
    return next((str(path) for folder in folders or () for path in sorted(Path(folder).glob(pattern))), None)


NVRTC = _in_package("cuda_nvrtc", "lib/libnvrtc.so.*") or ctypes.util.find_library("nvrtc")
PTXAS = _in_package("cuda_nvcc", "bin/ptxas") or shutil.which("ptxas")
WHY_NOT = "" if NVRTC and PTXAS else "there is no NVRTC or no ptxas (nvidia-cuda-nvrtc-cu12, nvidia-cuda-nvcc-cu12)"


@dataclass(frozen=True)
class Resources:
    """What `ptxas -v` says of one kernel, for one thread but for `shared_bytes`, which are those of a block."""

    registers: int
    spilled_bytes: int
    shared_bytes: int


def assemble(kernel: CudaKernel, arch: str, folder: Path) -> Resources:
    """Return what the kernel takes on devices such as "sm_80".

    Raises:
        AssertionError: The source is not taken; the text is that of the compiler.
    """
    assert PTXAS is not None
    path = folder / "kernel.ptx"
    path.write_bytes(_ptx(kernel.source, arch.replace("sm", "compute")))
    command = [PTXAS, "-v", f"-arch={arch}", str(path), "-o", str(folder / "kernel.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Resources(
        _number(r"Used (\d+) registers", done.stderr),
        _number(r"(\d+) bytes spill stores", done.stderr) + _number(r"(\d+) bytes spill loads", done.stderr),
        _number(r"(\d+) bytes smem", done.stderr),
    )


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    return int(found.group(1)) if found else 0


def _ptx(source: str, arch: str) -> bytes:
    """Return what NVRTC makes of CUDA C."""
    nvrtc, program = ctypes.CDLL(NVRTC), ctypes.c_void_p()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None) == 0
    texts = [f"--gpu-architecture={arch}".encode(), b"-diag-suppress=177"]  # TVM names what nothing reads
    failed = nvrtc.nvrtcCompileProgram(program, len(texts), (ctypes.c_char_p * len(texts))(*texts))
    text = _text(nvrtc, "ProgramLog" if failed else "PTX", program)
    assert not failed, text.decode()
    return text.rstrip(b"\0")


def _text(nvrtc: ctypes.CDLL, what: str, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    getattr(nvrtc, f"nvrtcGet{what}")(program, text)
    return text.raw
