"""What the code for a CPU must know of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tvm

from backends.cpu.costs import CACHE_BYTES, L1_WAYS
from backends.cpu.target import architecture_of, is_host
from backends.cpu.tile_permission import granted

DOT_BFLOAT16 = "avx512bf16"
DOT_BYTES = {16: "avx512vnni", 8: "avxvnni"}
DOT_PAIRS = {16: "avx512bw", 8: "avx2"}
"""By float32 lanes of a vector, the feature with instructions of that length."""
TILES = frozenset({"amx-tile", "amx-bf16", "avx512f"})
BYTE_TILES = frozenset({"amx-tile", "amx-int8", DOT_BYTES[16]})


@dataclass(frozen=True)
class Machine:
    """What code generation must know of a CPU.

    Attributes:
        vector_lanes: float32 lanes of the widest vector register.
        vector_registers: How many such registers there are.
        l1_bytes, l2_bytes, l3_bytes: Data-cache sizes in bytes; L1 and L2 per core, L3 shared.
        dot_bfloat16: Whether it multiplies pairs of bfloat16 in one instruction, in vectors of float32's lanes.
        dot_bytes: Whether it multiplies fours of bytes so.
        dot_pairs: Whether it multiplies pairs of int16 and adds them up in one.
        l1_ways: Lines of a set of L1.
        tiles: Whether it multiplies tiles of bfloat16 (AMX), beside vectors of 16 lanes.
        byte_tiles: Whether it multiplies those of bytes, beside what `dot_bytes` says.
    """

    vector_lanes: int
    vector_registers: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    dot_bfloat16: bool = False
    dot_bytes: bool = False
    dot_pairs: bool = False
    l1_ways: int = 8
    tiles: bool = False
    byte_tiles: bool = False

    @property
    def l1_span(self) -> int:
        """Bytes after which the sets of L1 come round; those of L2 come round after as many at the earliest."""
        return max(self.l1_bytes // self.l1_ways, 1)


def machine_of(target: tvm.target.Target, features: frozenset[str]) -> Machine:
    """Return the CPU that `target` names, which has these of LLVM's `features`."""
    lanes, registers = next(row for feature, *row in _VECTOR_UNITS if feature in features or not feature)
    architecture = architecture_of(target)
    l1, l2, l3 = CACHE_BYTES.get(architecture, CACHE_BYTES["x86_64"])
    ways = L1_WAYS.get(architecture, L1_WAYS["x86_64"])
    if is_host(target):
        l1, l2, l3 = (_cache_bytes(index, size) for index, size in zip(_CACHE_INDICES, (l1, l2, l3), strict=True))
        ways = _l1_ways(ways)
    may_have_tiles = bool(features >= TILES or features >= BYTE_TILES) and (not is_host(target) or granted())
    return Machine(
        vector_lanes=lanes,
        vector_registers=registers,
        l1_bytes=l1,
        l2_bytes=l2,
        l3_bytes=l3,
        dot_bfloat16=DOT_BFLOAT16 in features,
        dot_bytes=DOT_BYTES.get(lanes) in features,
        dot_pairs=DOT_PAIRS.get(lanes) in features,
        l1_ways=ways,
        tiles=features >= TILES and may_have_tiles,
        byte_tiles=features >= BYTE_TILES and may_have_tiles,
    )


# (LLVM feature, float32 lanes, registers): the first whose feature the CPU has. Intel SDM vol. 1 ch. 14-15, Arm ARM
# A1.4. Vectors of SVE have no fixed length: its CPUs count as NEON's.
_VECTOR_UNITS = (("avx512f", 16, 32), ("avx2", 8, 16), ("avx", 8, 16), ("neon", 4, 32), ("", 4, 16))
# In sysfs; 1 is that of instructions.
_CACHE_INDICES = (0, 2, 3)
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def _cache_bytes(index: int, default: int) -> int:
    text = _told(index, "size")
    return int(text[:-1]) * _UNITS[text[-1]] if text and text[-1] in _UNITS else default


def _l1_ways(default: int) -> int:
    text = _told(0, "ways_of_associativity")
    return int(text) if text.isdigit() and int(text) else default


def _told(index: int, what: str) -> str:
    """Return what the kernel tells of a cache; "" where it tells nothing."""
    try:
        return Path(f"/sys/devices/system/cpu/cpu0/cache/index{index}/{what}").read_text().strip()
    except OSError:
        return ""
