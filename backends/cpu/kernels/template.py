"""What a family of kernels is to the rest of the backend: one object, its `TEMPLATE`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tvm import relax, tirx
from tvm.s_tir.stmt import SBlock

from backends.cpu.machine import Machine
from backends.tensorir.estimate import Estimate
from backends.tensorir.result import Scheduled
from backends.tensorir.roles import anchor_of
from backends.tensorir.space import Point, Space
from fusion.structural import find
from partition.access import ANCHOR, POOL
from partition.recurrence import recurrence_of

R = TypeVar("R")
P = TypeVar("P", bound=Point)

Concerns = Callable[[relax.BlockBuilder, relax.Call, int], bool]
Write = Callable[[relax.BlockBuilder, relax.Call, int], relax.Expr]


@dataclass(frozen=True)
class Lower:
    """How a family takes an operator. Both functions get a builder, the call and the float32 lanes of a vector.

    Attributes:
        write: Returns the call as TensorIR, weights packed. Raises `Declined` with the reason why it is not one of the
            family's, which reaches `explain()`.
        concerns: Whether the call has the form that the family computes; others are those of other families, and
            nobody asks why this one has not taken them.
    """

    write: Write
    concerns: Concerns = lambda builder, call, lanes: True


@dataclass(frozen=True)
class Marks:
    """What lowerings wrote on a kernel, by which its family is told.

    Attributes:
        blocks: Those of an anchor or of a pool that says what its window is, in order.
        is_recurrence: Whether all of it is a recurrence.
    """

    blocks: tuple[SBlock, ...]
    is_recurrence: bool

    @staticmethod
    def of(func: tirx.PrimFunc) -> Marks:
        """Return the marks of `func`."""
        found = (block for block in find(func.body, SBlock) if ANCHOR in block.annotations or POOL in block.annotations)
        return Marks(tuple(found), recurrence_of(func) is not None)

    @property
    def anchor_blocks(self) -> list[SBlock]:
        """The block of each anchor."""
        return [block for block in self.blocks if anchor_of(block)]

    @property
    def anchors(self) -> list[str]:
        """The kind of each anchor."""
        return [anchor_of(block) for block in self.anchor_blocks]

    def is_one(self, *kinds: str) -> bool:
        """Return whether there is one anchor, of one of these kinds."""
        return len(self.anchors) == 1 and self.anchors[0] in kinds


@dataclass(frozen=True)
class Template(Generic[R, P]):
    """A family of kernels. `R` is what it reads of a PrimFunc, `P` a point of its space.

    Attributes:
        name: In reports.
        read: Returns what the blocks of a kernel are. Raises `Declined` with the reason why it is none of these.
        space: Returns the ways to cut its loops, all of them right. Raises `Declined` where there is none.
        emit: Returns the kernel with the loops of a point.
        claims: Whether kernels with such marks are this family's, and no other's; None for one that takes any kernel
            that it can read.
        concerns: For one that claims none: whether a kernel has the form that the family computes. Others are those of
            other families, and nobody asks why this one has not taken them; nor where it raises `Declined`.
        lowerings: By operator, what writes it as a call that the family claims.
        estimate: For a family that computes in one kernel what several can, what both take. Raises `Declined`.
        why_not_fused: Why several kernels are the better form, where the estimate does not tell all; "" where one is.
        emit_open: Returns a kernel of which only a call knows some extents (`symbols_of`), with loops that are right at
            all sizes, 0 and 1 included: (kernel, machine, threads). Raises `Declined`. Where it does, and where it is
            None, a kernel of any number of images is that of one, for each (`shared/mapped.py`).
    """

    name: str
    read: Callable[[tirx.PrimFunc], R]
    space: Callable[[R, Machine, int], Space[P]]
    emit: Callable[[tirx.PrimFunc, R, Machine, P], Scheduled]
    claims: Callable[[Marks], bool] | None = None
    concerns: Callable[[tirx.PrimFunc], bool] = lambda func: True
    lowerings: Mapping[str, Lower] = field(default_factory=dict)
    estimate: Callable[[R, Machine, int], Estimate] | None = None
    why_not_fused: Callable[[R, Machine, int], str] | None = None
    emit_open: Callable[[tirx.PrimFunc, Machine, int], Scheduled] | None = None
