"""nvcc, where NVRTC is not installed: the same code of CUDA C, by processes of their own."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from backends.cuda.packages import find_in_package
from fusion.errors import InternalError, NotInstalledError

_SECONDS = 300
"""For one kernel, which takes seconds and on a busy machine many times as long; a linker, which takes 0.1, has less."""
_LOG = 1000


def find_nvcc() -> str | None:
    """Return nvcc of the PATH, or of PyPI's package for CUDA 13 (that for CUDA 12 lacks nvcc itself); None without."""
    return shutil.which("nvcc") or find_in_package("cuda_nvcc", "bin/nvcc")


def compile_source(nvcc: str, source: str, arch: str) -> tuple[bytes, bytes]:
    """Return the cubin and the PTX of CUDA C for devices such as "sm_80".

    Raises:
        NotInstalledError: nvcc does not run, or does not know the architecture.
        InternalError: It refuses the text, which is ours; the reason is what it says.
    """
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "kernel.cu"
        text.write_text(source)
        cubin, ptx = (_run(nvcc, kind, text, arch) for kind in ("cubin", "ptx"))
    return cubin, ptx


def _run(nvcc: str, kind: str, text: Path, arch: str) -> bytes:
    made = text.with_suffix(f".{kind}")
    # TVM names what nothing reads (177).
    command = [nvcc, f"-{kind}", f"-arch={arch}", "-diag-suppress=177", str(text), "-o", str(made)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _unusable(nvcc, str(error)) from error
    if done.returncode and f"{text.name}(" in done.stderr:
        raise InternalError("nvcc refuses a kernel", why=done.stderr[:_LOG], hint="report it")
    if done.returncode:
        raise _unusable(nvcc, done.stderr.strip()[:_LOG])
    return made.read_bytes()


def _unusable(nvcc: str, why: str) -> NotInstalledError:
    hint = "pip install fusion[cuda], which brings NVRTC and needs no C++ compiler, or mend the toolkit"
    return NotInstalledError(f"{nvcc} compiles no kernels", why=why, hint=hint)
