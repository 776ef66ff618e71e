"""NVRTC and ptxas, where they are installed: what the toolkit makes of CUDA C, without a driver or a device."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from backends.cuda.codegen.generate import CudaKernel
from backends.cuda.codegen.nvcc import find_nvcc
from backends.cuda.codegen.nvrtc import PACKAGE, assemble, find_nvrtc
from backends.cuda.packages import find_in_package

PTXAS = find_in_package("cuda_nvcc", "bin/ptxas") or shutil.which("ptxas")
WHY_NO_CUBIN = "" if find_nvrtc() or find_nvcc() else "there is no NVRTC and no nvcc"
_PACKAGES = f"{PACKAGE}, nvidia-cuda-nvcc-cu12"
WHY_NOT = "" if find_nvrtc() and PTXAS else f"there is no NVRTC or no ptxas ({_PACKAGES})"


@dataclass(frozen=True)
class Resources:
    """What `ptxas -v` says of one kernel, for one thread but for `shared_bytes`, which are those of a block."""

    registers: int
    spilled_bytes: int
    shared_bytes: int


def resources_of(kernel: CudaKernel, arch: str, folder: Path) -> Resources:
    """Return what the kernel takes on devices such as "sm_80".

    Raises:
        InternalError: The source is not taken; the text is that of the compiler.
    """
    assert PTXAS is not None
    path = folder / "kernel.ptx"
    path.write_bytes(assemble(kernel.source, arch).ptx)
    command = [PTXAS, "-v", f"-arch={arch}", str(path), "-o", str(folder / "kernel.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Resources(
        _number(r"Used (\d+) registers", done.stderr),
        _number(r"(\d+) bytes spill stores", done.stderr) + _number(r"(\d+) bytes spill loads", done.stderr),
        _number(r"(\d+) bytes smem", done.stderr),
    )


def cubin_of(kernel: CudaKernel, arch: str, folder: Path) -> bytes:
    """Return machine code of a kernel, by NVRTC, or by nvcc, of which only the cubin is asked."""
    nvcc = find_nvcc() if find_nvrtc() is None else None
    if nvcc is None:
        return assemble(kernel.source, arch).cubin
    text, made = folder / "kernel.cu", folder / "kernel.cubin"
    text.write_text(kernel.source)
    command = [nvcc, "-cubin", f"-arch={arch}", "-diag-suppress=177", str(text), "-o", str(made)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return made.read_bytes()


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    return int(found.group(1)) if found else 0
