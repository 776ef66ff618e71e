"""What moving data costs beside starting kernels: all in bytes, so that what a choice saves and costs adds up."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MemoryCosts:
    """Of one machine.

    Attributes:
        start: Bytes that a core gets from memory while a kernel starts.
        call: Bytes that all cores move in the time of one more call.
        run: How many have to lie together where a memory-bound kernel reads or writes a part of a tensor; with fewer
            its vectors are mostly empty.
        anchored_run: The same for a matmul or a convolution, which writes each of its rows by itself in any case.
    """

    start: int
    call: int
    run: int
    anchored_run: int
