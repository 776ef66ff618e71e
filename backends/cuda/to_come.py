"""What compiling for a CUDA device says while nothing compiles for one."""

from __future__ import annotations

from fusion.errors import TargetError


def why_not_compiled() -> TargetError:
    """Return the error of a compilation for `target="cuda"`, whatever the device."""
    return TargetError(
        "this version compiles for CPUs, not for CUDA devices",
        why="of CUDA it has elementwise kernels, those of short rows and products, and a writer of CUDA C; "
        "it has no kernels for the rest of a model, and nothing that starts one on a device",
        hint='use "llvm" for this machine\'s CPU or "llvm -mcpu=NAME" for another, '
        "or install a package that registers a backend for this kind of target",
    )
