"""Which CPU features code may need, by LLVM's name, and whether this CPU has them; without LLVM itself.

The kernel lists them in /proc/cpuinfo under names of its own. Only features whose instructions LLVM can generate from
the code fusion makes are here: privileged ones and tuning hints ("prefer-256-bit") do not keep a module from running.
"""

from __future__ import annotations

import functools
import platform
from pathlib import Path

_X86 = {
    "sse3": "pni", "ssse3": "ssse3", "sse4.1": "sse4_1", "sse4.2": "sse4_2", "popcnt": "popcnt", "lzcnt": "abm",
    "bmi": "bmi1", "bmi2": "bmi2", "movbe": "movbe", "f16c": "f16c", "fma": "fma", "avx": "avx", "avx2": "avx2",
    "avx512f": "avx512f", "avx512bw": "avx512bw", "avx512cd": "avx512cd", "avx512dq": "avx512dq",
    "avx512vl": "avx512vl", "avx512ifma": "avx512ifma", "avx512vbmi": "avx512vbmi", "avx512vbmi2": "avx512_vbmi2",
    "avx512vnni": "avx512_vnni", "avx512bitalg": "avx512_bitalg", "avx512vpopcntdq": "avx512_vpopcntdq",
    "avx512bf16": "avx512_bf16", "avx512fp16": "avx512_fp16", "avx512vp2intersect": "avx512_vp2intersect",
    "avxvnni": "avx_vnni", "avxifma": "avx_ifma", "amx-tile": "amx_tile", "amx-int8": "amx_int8",
    "amx-bf16": "amx_bf16", "amx-fp16": "amx_fp16", "gfni": "gfni", "vaes": "vaes", "vpclmulqdq": "vpclmulqdq",
    "pclmul": "pclmulqdq", "aes": "aes", "sha": "sha_ni", "adx": "adx",
}  # fmt: skip
_ARM = {
    "neon": "asimd", "dotprod": "asimddp", "fullfp16": "asimdhp", "fp16fml": "asimdfhm", "sve": "sve", "sve2": "sve2",
    "i8mm": "i8mm", "bf16": "bf16", "lse": "atomics", "crc": "crc32", "aes": "aes", "sha2": "sha2", "rdm": "asimdrdm",
}  # fmt: skip
_TABLES = {"x86_64": _X86, "aarch64": _ARM}
_MACHINE_NAMES = {"amd64": "x86_64", "arm64": "aarch64"}


def host_architecture() -> str:
    """Return this machine's architecture as LLVM's triples name it."""
    name = platform.machine().lower()
    return _MACHINE_NAMES.get(name, name)


def needed_features(architecture: str, features: frozenset[str]) -> tuple[str, ...]:
    """Return those of a target's `features` that a CPU must have to run its code."""
    return tuple(sorted(features & _TABLES.get(architecture, {}).keys()))


def missing_features(features: tuple[str, ...]) -> list[str]:
    """Return those of `features` that this CPU lacks; none where the system does not tell what it has."""
    flags, table = _host_flags(), _TABLES.get(host_architecture(), {})
    return [name for name in features if flags and table.get(name, name) not in flags]


@functools.cache
def _host_flags() -> frozenset[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    return frozenset(
        next((line.partition(":")[2] for line in lines if line.startswith(("flags", "Features"))), "").split()
    )
