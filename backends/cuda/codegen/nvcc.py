"""nvcc, where NVRTC is not installed: the same code of CUDA C, by processes of their own."""

from __future__ import annotations

import logging
import shutil
import subprocess
import tempfile
from pathlib import Path

from backends.cuda.packages import find_in_package
from fusion.errors import InternalError, NotInstalledError
from fusion.system.process_groups import kill_group, wait_for_end

_SECONDS = 300
"""For one kernel, which takes seconds and on a busy machine many times as long; a linker, which takes 0.1, has less."""
_SILENCE_S = 10
"""Of these without a word."""
_LOG = 1000
_log = logging.getLogger("fusion.backends")


def find_nvcc() -> str | None:
    """Return nvcc of the PATH, or of PyPI's package for CUDA 13 (that for CUDA 12 lacks nvcc itself); None without."""
    return shutil.which("nvcc") or find_in_package("cuda_nvcc", "bin/nvcc")


def compile_source(nvcc: str, source: str, arch: str, name: str = "kernel") -> tuple[bytes, bytes]:
    """Return the cubin and the PTX of CUDA C for devices such as "sm_80".

    Args:
        name: Of the kernel, for warnings and errors: where it takes long, which may be a hang, a warning says so.

    Raises:
        NotInstalledError: nvcc does not run, does not come to an end, or does not know the architecture.
        InternalError: It refuses the text, which is ours; the reason is what it says.
    """
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "kernel.cu"
        text.write_text(source)
        cubin, ptx = (_make(nvcc, kind, text, arch, name) for kind in ("cubin", "ptx"))
    return cubin, ptx


def _make(nvcc: str, kind: str, text: Path, arch: str, name: str) -> bytes:
    made = text.with_suffix(f".{kind}")
    # TVM names what nothing reads (177).
    command = [nvcc, f"-{kind}", f"-arch={arch}", "-diag-suppress=177", str(text), "-o", str(made)]
    try:
        code, told = _run(command, f"the {kind} of kernel {name!r}")
    except OSError as error:
        raise _unusable(nvcc, str(error)) from error
    except subprocess.TimeoutExpired as error:
        raise _unusable(nvcc, f"it did not make the {kind} of kernel {name!r} in {_SECONDS} s") from error
    if code and f"{text.name}(" in told:
        raise InternalError(f"nvcc refuses kernel {name!r}", why=told[:_LOG], hint="report it")
    if code:
        raise _unusable(nvcc, told.strip()[:_LOG])
    return made.read_bytes()


def _run(command: list[str], what: str) -> tuple[int, str]:
    """Return how a command that makes something ends, and what it says of errors: in a file, as a pipe ends only with
    the last process that has it, which may be one that the command leaves behind.

    Raises:
        OSError: It cannot be started.
        subprocess.TimeoutExpired: It has been given up, with what it started.
    """
    with tempfile.TemporaryFile() as told:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=told, start_new_session=True)
        try:
            try:
                wait_for_end(process, _SILENCE_S)
            except subprocess.TimeoutExpired:
                _log.warning(
                    "%s has not made %s for %.0f s; it is given up after %.0f s",
                    command[0], what, _SILENCE_S, _SECONDS,
                )  # fmt: skip
                wait_for_end(process, _SECONDS - _SILENCE_S)
        finally:
            if process.poll() is None:
                kill_group(process)
        told.seek(0)
        return process.returncode, told.read().decode(errors="replace")


def _unusable(nvcc: str, why: str) -> NotInstalledError:
    hint = "pip install fusion[cuda], which brings NVRTC and needs no C++ compiler, or mend the toolkit"
    return NotInstalledError(f"{nvcc} compiles no kernels", why=why, hint=hint)
