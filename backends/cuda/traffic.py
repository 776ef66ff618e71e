"""What a launch asks of a device, as plain data that code files keep."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LaunchTraffic:
    """What the threads of one launch do, as `backends/cuda/codegen/count_traffic.py` counts it.

    Attributes:
        thread_bytes: That threads load from and store to shared and global memory, through L1: at most.
        l2_bytes: That are read of L2 whatever L1 has, by copies past it, and stored: at most.
        multiplies: The operands that tensor cores multiply: "float16", "bfloat16" or "tfloat32"; "" without any.
    """

    thread_bytes: int
    l2_bytes: int
    multiplies: str
