"""Architectures of CUDA devices, as compilers name them, and which devices run code for one."""

from __future__ import annotations

from collections.abc import Sequence

from fusion.errors import TargetError


def runs_on(arch: str, capability: tuple[int, int], *, is_ptx: bool = False) -> bool:
    """Return whether code for an architecture such as "sm_80" runs on devices of a capability: machine code on those of
    the same major one, PTX on all later ones (CUDA C++ programming guide, "Binary compatibility")."""
    known = capability_of(arch)
    return known <= capability and (is_ptx or known[0] == capability[0])


def fitting_arch(archs: Sequence[str], capability: tuple[int, int]) -> str:
    """Return the last of the architectures, which ascend, whose machine code runs on devices of a capability; ""
    without any."""
    return next((arch for arch in reversed(archs) if runs_on(arch, capability)), "")


def capability_of(arch: str) -> tuple[int, int]:
    """Return (9, 0) for "sm_90".

    Raises:
        TargetError: It is no such name.
    """
    number = arch.removeprefix("sm_")
    if not number.isdecimal():
        raise TargetError(f"{arch!r} is no architecture of CUDA devices", hint='write it as "sm_80"')
    return int(number) // 10, int(number) % 10
