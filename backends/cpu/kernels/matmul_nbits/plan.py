"""How a product with weights of 4 bits is cut: a tile as tall as registers hold, two vectors wide, and tasks."""

from __future__ import annotations

from dataclasses import dataclass

from backends.cpu.costs import FMA_PER_CYCLE, MEMORY_BYTES_PER_CYCLE, REGION_CYCLES
from backends.cpu.kernels.matmul_nbits.digits_function import BlockDigits
from backends.cpu.kernels.matmul_nbits.read import NBitsProduct, check_machine
from backends.cpu.kernels.matmul_nbits.sums_function import SumsFunction
from backends.cpu.machine import Machine
from backends.tensorir.extents import typical
from backends.tensorir.space import Space
from backends.tensorir.stages import dtype_of

_VECTORS = 2
"""Of a panel: a number of a row that is loaded is multiplied twice."""

_PART = 32
"""Weights of a column whose products are added up in int16 where the CPU has no VPDPBUSD: 32 * 2 * 15 * 128 / 4 is
30720. Blocks of 16 are a part each."""


@dataclass(frozen=True)
class NBitsPlan:
    """The one point of the space.

    Attributes:
        function: What sums a tile.
        threads: That share the tasks.
        cycles: The estimate, of the slowest thread.
    """

    function: SumsFunction
    threads: int
    cycles: float = 0.0

    @property
    def width(self) -> int:
        """Columns of a panel."""
        return self.function.vectors * self.function.lanes

    def axes(self) -> dict[str, int]:
        """See `Point`."""
        return {"threads": self.threads}

    def __str__(self) -> str:
        function, digits = self.function, self.function.layout.digits
        tile = f"{function.tallest}x{function.vectors}v"
        return f"tiles up to {tile}, {digits} byte{'s' * (digits > 1)} a number"


def plan_of(parts: NBitsProduct, machine: Machine, threads: int) -> NBitsPlan:
    """Return the plan.

    Raises:
        Declined: The CPU multiplies no bytes.
    """
    check_machine(machine)
    layout = BlockDigits(parts.digits, min(_PART, parts.block), parts.kind_of_zeros)
    # A tile has its sums in float32 and in int32; beside it are two halves of each vector of weights and a mask.
    held = machine.vector_registers - 2 * _VECTORS - 2
    tallest = max(held // (_VECTORS * (1 + parts.digits)), 1)
    function = SumsFunction(
        layout=layout, tallest=tallest, vectors=_VECTORS, lanes=machine.vector_lanes, scale=dtype_of(parts.scales),
        fused=machine.dot_bytes,
    )  # fmt: skip
    return NBitsPlan(function, threads, _cycles(parts, machine, threads))


def nbits_space(parts: NBitsProduct, machine: Machine, threads: int) -> Space[NBitsPlan]:
    """Return the one point."""
    point = plan_of(parts, machine, threads)
    return Space(point, lambda: iter((point,)))


def _cycles(parts: NBitsProduct, machine: Machine, threads: int) -> float:
    """Return the longer of what the products take and the reading of weights."""
    rows, weights = 1, parts.channels * parts.depth
    for extent in parts.lead:
        rows *= typical(extent)
    products = rows * weights * parts.digits / (4 * machine.vector_lanes * FMA_PER_CYCLE)
    read = weights / 2 * (1 + 8 / parts.block) / MEMORY_BYTES_PER_CYCLE
    return max(products, read) / threads + REGION_CYCLES
