"""Whether Linux lets this process use tiles of AMX, which it grants to those that ask."""

from __future__ import annotations

import ctypes
import platform

ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA = 158, 0x1023, 18
"""The system call, its request, and the part of a thread's state (Linux, Documentation/arch/x86/xstate.rst)."""


def granted() -> bool:
    """Return whether Linux grants this process tiles. It does not where a thread's signal stack is too small for what
    it saves, nor to the 32-bit kind of processes."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return False
    arguments = map(ctypes.c_long, (ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA))
    return int(ctypes.CDLL(None).syscall(*arguments)) == 0
