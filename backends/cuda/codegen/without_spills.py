"""Kernels whose threads spill, though there are registers: ptxas is told to have fewer blocks on an SM.

ptxas chooses how many registers a thread has by how many blocks an SM holds then, and spills what is above them. That
is no gain: what is spilled goes through memory in each turn of a loop, and the blocks may find no shared memory, of
which ptxas knows nothing. No estimate says well how many registers a kernel needs: windows of 7 x 7 take 30 more than
other products of the same tile. So its machine code says it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from backends.cuda.codegen.generate import CudaKernel, leave_registers_for
from backends.cuda.devices import REGISTERS

Taken = tuple[int, int]
"""Registers of a thread, and the bytes that it spills."""


def without_spills(kernel: CudaKernel, archs: Sequence[str], taken: Callable[[CudaKernel, str], Taken]) -> CudaKernel:
    """Return the kernel, told to have as many blocks on an SM as there are without spills on any of `archs`.

    It is as it was where it spills nothing, and where fewer blocks do not help: one that has no registers left, or
    whose arrays no register can have.

    Args:
        taken: What a kernel takes of an architecture.
    """
    found = [taken(kernel, arch) for arch in archs]
    least, spilled = kernel, sum(each for _, each in found)
    held = min(REGISTERS // (max(1, registers) * kernel.threads) for registers, _ in found)
    for blocks in range(held - 1, 0, -1):
        if not spilled:
            break
        told = replace(kernel, source=leave_registers_for(blocks, kernel.source))
        spilled_so = sum(taken(told, arch)[1] for arch in archs)
        if spilled_so < spilled:
            least, spilled = told, spilled_so
    return least
