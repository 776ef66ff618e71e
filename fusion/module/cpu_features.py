"""Which CPU features code may need, by LLVM's name, and whether this CPU has them; without LLVM itself.

The kernel lists x86's in /proc/cpuinfo under names of its own; Arm's it gives as bits, which emulators set too. Only
features whose instructions LLVM can generate from the code fusion makes are here: privileged ones, tuning hints
("prefer-256-bit") and AMX, which is only reached by name, do not keep a module from running.
"""

from __future__ import annotations

import ctypes
import functools
import platform
from collections.abc import Collection
from pathlib import Path

from fusion.system.control_groups import read_text

_X86 = {
    "sse3": "pni", "ssse3": "ssse3", "sse4.1": "sse4_1", "sse4.2": "sse4_2", "popcnt": "popcnt", "lzcnt": "abm",
    "bmi": "bmi1", "bmi2": "bmi2", "movbe": "movbe", "f16c": "f16c", "fma": "fma", "avx": "avx", "avx2": "avx2",
    "avx512f": "avx512f", "avx512bw": "avx512bw", "avx512cd": "avx512cd", "avx512dq": "avx512dq",
    "avx512vl": "avx512vl", "avx512ifma": "avx512ifma", "avx512vbmi": "avx512vbmi", "avx512vbmi2": "avx512_vbmi2",
    "avx512vnni": "avx512_vnni", "avx512bitalg": "avx512_bitalg", "avx512vpopcntdq": "avx512_vpopcntdq",
    "avx512bf16": "avx512_bf16", "avx512fp16": "avx512_fp16", "avx512vp2intersect": "avx512_vp2intersect",
    "avxvnni": "avx_vnni", "avxifma": "avx_ifma", "gfni": "gfni", "vaes": "vaes", "vpclmulqdq": "vpclmulqdq",
    "pclmul": "pclmulqdq", "aes": "aes", "sha": "sha_ni", "adx": "adx",
}  # fmt: skip
# (16 for AT_HWCAP or 26 for AT_HWCAP2, bit), of Linux's arch/arm64/include/uapi/asm/hwcap.h.
_ARM = {
    "neon": (16, 1), "aes": (16, 3), "sha2": (16, 6), "crc": (16, 7), "lse": (16, 8), "fullfp16": (16, 10),
    "rdm": (16, 12), "dotprod": (16, 20), "sve": (16, 22), "fp16fml": (16, 23), "sve2": (26, 1), "i8mm": (26, 13),
    "bf16": (26, 14),
}  # fmt: skip
_MACHINE_NAMES = {"amd64": "x86_64", "arm64": "aarch64"}


def host_architecture() -> str:
    """Return this machine's architecture as LLVM's triples name it."""
    name = platform.machine().lower()
    return _MACHINE_NAMES.get(name, name)


def host_system() -> str:
    """Return this machine's system as LLVM's triples name it."""
    return platform.system().lower()


def needed_features(architecture: str, features: frozenset[str]) -> tuple[str, ...]:
    """Return those of a target's `features` that a CPU must have to run its code."""
    known: dict[str, Collection[str]] = {"x86_64": _X86, "aarch64": _ARM}
    return tuple(sorted(features.intersection(known.get(architecture, ()))))


def missing_features(features: tuple[str, ...], here: frozenset[str] | None = None) -> list[str]:
    """Return those of `features` that this CPU lacks, or one that has those `here`; none where the system does not tell
    what it has."""
    have = _host_features() if here is None else here
    return [name for name in features if have and name not in have]


@functools.cache
def _host_features() -> frozenset[str]:
    return _arm_features() if host_architecture() == "aarch64" else _x86_features()


def _x86_features() -> frozenset[str]:
    return x86_features(read_text(Path("/proc/cpuinfo")))


def x86_features(cpuinfo: str) -> frozenset[str]:
    """Return the features that Linux tells of an x86 CPU in `/proc/cpuinfo`."""
    lines = cpuinfo.splitlines()
    flags = next((line.partition(":")[2] for line in lines if line.startswith("flags")), "").split()
    return frozenset(name for name, flag in _X86.items() if flag in flags)


def _arm_features() -> frozenset[str]:
    try:
        word = ctypes.CDLL(None).getauxval
    except (AttributeError, OSError):
        return frozenset()
    word.argtypes, word.restype = [ctypes.c_ulong], ctypes.c_ulong
    return frozenset(name for name, (kind, bit) in _ARM.items() if word(kind) >> bit & 1)
