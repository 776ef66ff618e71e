"""NVRTC, called by ctypes: makes machine code and PTX of CUDA C, without a driver, a device or headers."""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
from dataclasses import dataclass

from backends.cuda.codegen.nvcc import compile_source, find_nvcc
from backends.cuda.packages import find_in_package
from fusion.errors import InternalError, NotInstalledError

PACKAGE = "nvidia-cuda-nvrtc-cu12"
_NO_BUILTINS = 7
"""NVRTC_ERROR_BUILTIN_OPERATION_FAILURE: it does not find libnvrtc-builtins, which lies beside it."""


@dataclass(frozen=True)
class Assembled:
    """Code of one kernel.

    Attributes:
        cubin: For devices of one architecture.
        ptx: Text that a driver compiles for later ones.
    """

    cubin: bytes
    ptx: bytes


@functools.cache
def find_nvrtc() -> str | None:
    """Return the library of the package from PyPI, that for CUDA 12 first, whose code more drivers take, or the
    system's; None where there is neither."""
    return find_in_package("cuda_nvrtc", "lib/libnvrtc.so.*") or ctypes.util.find_library("nvrtc")


def nvrtc_version() -> str:
    """Return the version of NVRTC and where it is; "none" without."""
    path = find_nvrtc()
    if path is None:
        return "none"
    major, minor = ctypes.c_int(), ctypes.c_int()
    try:
        failed = ctypes.CDLL(path).nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    except OSError as error:
        return f"{path} cannot be loaded: {error}"
    return f"fails with its error {failed}: {path}" if failed else f"{major.value}.{minor.value} ({path})"


def assemble(source: str, arch: str, name: str = "kernel") -> Assembled:
    """Return the code of CUDA C for devices such as "sm_80".

    Where there is no NVRTC, nvcc makes it, which takes seconds a kernel.

    Args:
        name: Of the kernel, for what nvcc does not say of itself.

    Raises:
        NotInstalledError: There is neither, or it does not know the architecture, or its own files are not whole.
        InternalError: It refuses the text, which is ours; the reason is what it says.
    """
    nvcc = find_nvcc() if find_nvrtc() is None else None
    if nvcc is not None:
        return Assembled(*compile_source(nvcc, source, arch, name))
    nvrtc, program = _library(), ctypes.c_void_p()
    _require_arch(nvrtc, arch)
    # TVM names what nothing reads (177).
    options = [f"--gpu-architecture={arch}".encode(), b"-diag-suppress=177"]
    _check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None), "")
    try:
        failed = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        log = _bytes(nvrtc, "ProgramLog", program).rstrip(b"\0").decode(errors="replace") if failed else ""
        if failed == _NO_BUILTINS:
            raise NotInstalledError(
                "NVRTC is not installed whole",
                why=log.strip()[:1000] or "it does not find its libnvrtc-builtins",
                hint=f"install it again: pip install --force-reinstall {PACKAGE}",
            )
        _check(failed, log)
        return Assembled(_bytes(nvrtc, "CUBIN", program), _bytes(nvrtc, "PTX", program).rstrip(b"\0"))
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


@functools.cache
def _library() -> ctypes.CDLL:
    path = find_nvrtc()
    if path is None:
        raise NotInstalledError(
            "there is no compiler of CUDA C",
            why="NVRTC or nvcc makes code of kernels for CUDA devices, and neither is installed",
            hint=f"pip install fusion[cuda], or {PACKAGE}, or nvidia-cuda-nvcc; or put nvcc of a toolkit in the PATH",
        )
    return ctypes.CDLL(path)


def _require_arch(nvrtc: ctypes.CDLL, arch: str) -> None:
    """Raise where NVRTC makes no code for an architecture: of one that is new, where NVRTC is old."""
    count = ctypes.c_int()
    _check(nvrtc.nvrtcGetNumSupportedArchs(ctypes.byref(count)), "")
    known = (ctypes.c_int * count.value)()
    _check(nvrtc.nvrtcGetSupportedArchs(known), "")
    # sm_90a is sm_90, with instructions that later devices lack.
    if arch.removeprefix("sm_").rstrip("af") not in map(str, known):
        raise NotInstalledError(
            f"this NVRTC makes no code for {arch}",
            why=f"it knows {', '.join(f'sm_{each}' for each in known)}",
            hint=f"install another: pip install --upgrade {PACKAGE}, or that of a later CUDA",
        )


def _check(failed: int, log: str) -> None:
    if failed:
        raise InternalError(f"NVRTC refuses a kernel with its error {failed}", why=log[:1000], hint="report it")


def _bytes(nvrtc: ctypes.CDLL, what: str, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    getattr(nvrtc, f"nvrtcGet{what}")(program, text)
    return text.raw
