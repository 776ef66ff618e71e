"""Reads a product with weights of 4 bits: its operands, the sizes of its blocks, and what is behind it."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx
from tvm.ir import Var

from backends.cpu.machine import Machine
from backends.tensorir.extents import Extent
from backends.tensorir.roles import Output, read_roles
from backends.tensorir.stages import dims_of, dtype_of
from fusion.declined import Declined
from partition.access import MATMUL_NBITS, NBITS_DIGITS

NO_ZEROS, FOR_INTEGERS, FOR_FLOATS = "middle", "integers", "floats"
"""What zero points weights have: 8 all of them, or integers, or numbers."""


@dataclass(frozen=True)
class NBitsProduct:
    """`outputs` of [*lead, depth] times [depth, channels], whose weights have 4 bits.

    Attributes:
        rows: The left operand, of float32.
        weights: Of [channels, blocks, block / 2], uint8: two of k in each, the earlier in the lower half.
        scales: Of [channels, blocks], float32 or float16.
        zeros: None, or of [channels, blocks, 1], uint8 or float32.
        digits: How many bytes make a number of a row.
        outputs: What is stored for each element of the product.
    """

    rows: Var
    weights: Var
    scales: Var
    zeros: Var | None
    digits: int
    lead: tuple[Extent, ...]
    outputs: tuple[Output, ...]

    @property
    def depth(self) -> int:
        """Elements of a row."""
        return int(dims_of(self.rows)[-1])

    @property
    def channels(self) -> int:
        """Columns of the result."""
        return int(dims_of(self.weights)[0])

    @property
    def blocks(self) -> int:
        """Blocks of a column."""
        return int(dims_of(self.weights)[1])

    @property
    def block(self) -> int:
        """Weights of a block."""
        return 2 * int(dims_of(self.weights)[2])

    @property
    def kind_of_zeros(self) -> str:
        """What zero points there are."""
        if self.zeros is None:
            return NO_ZEROS
        return FOR_INTEGERS if dtype_of(self.zeros) == "uint8" else FOR_FLOATS


def read_nbits(func: tirx.PrimFunc) -> NBitsProduct:
    """Return the product that `func` has.

    Raises:
        Declined: It has none of float32 rows, or something else beside it.
    """
    roles = read_roles(func)
    if roles.kind != MATMUL_NBITS:
        raise Declined("no product with weights of 4 bits")
    rows, weights, *zeros, scales = roles.operands
    if dtype_of(rows) != "float32":
        raise Declined("rows that are not of float32")
    return NBitsProduct(
        rows=rows, weights=weights, scales=scales, zeros=zeros[0] if zeros else None,
        digits=int(roles.attrs[NBITS_DIGITS]), lead=tuple(roles.shape[:-1]), outputs=roles.outputs,
    )  # fmt: skip


def check_machine(machine: Machine) -> None:
    """Raise where the CPU does not multiply bytes."""
    if not (machine.dot_bytes or machine.dot_pairs):
        raise Declined("the CPU multiplies no bytes")
