"""What a kernel family provides to the rest of the backend: one object, its `TEMPLATE`."""

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
    """How a family lowers one operator. Both functions get a builder, the call, and the float32 lanes of a vector.

    Attributes: write: Returns the call as `call_tir`, with packed weights. Raises `Declined` with the reason if the
        family does not support it, which `explain()` shows.
        concerns: Whether the family is meant for the call at all; if not, it is passed over without a note.
    """

    write: Write
    concerns: Concerns = lambda builder, call, lanes: True


@dataclass(frozen=True)
class Marks:
    """The annotations that lowerings left on a kernel, by which families claim it.

    Attributes:
        blocks: The blocks marked as anchors or max poolings, in order.
        is_recurrence: Whether the kernel is a recurrent layer.
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
        """The blocks of the anchors."""
        return [block for block in self.blocks if anchor_of(block)]

    @property
    def anchors(self) -> list[str]:
        """The kinds of the anchors."""
        return [anchor_of(block) for block in self.anchor_blocks]

    def is_one(self, *kinds: str) -> bool:
        """Return whether there is exactly one anchor, and it is of one of these kinds."""
        return len(self.anchors) == 1 and self.anchors[0] in kinds


@dataclass(frozen=True)
class Template(Generic[R, P]):
    """A kernel family. `R` is what it reads from a PrimFunc, `P` a point of its schedule space.

    Attributes:
        name: The name in reports.
        read: PrimFunc -> the roles of its blocks. Raises `Declined` with the reason if the kernel is not of this
        family.
        space: (what was read, machine, threads) -> the schedule space, every point of which is correct. Raises
            `Declined` if there is no point.
        emit: (PrimFunc, what was read, machine, point) -> the kernel scheduled by that point.
        claims: Whether kernels with such marks belong to this family only; None for a family that claims none, but
            tries every kernel.
        concerns: For a family that claims none: whether it is meant for the kernel at all. If not, or if this raises
            `Declined`, it is passed over without a note.
        lowerings: By Relax operator, how to write calls of it as kernels that the family claims.
        estimate: For a family that fuses several anchors: the estimated times of one kernel and of several. Raises
            `Declined`.
        why_not_fused: Why several kernels are better for a reason that the estimate does not have; "" if there is none.
        emit_open: (PrimFunc, machine, threads) -> a kernel with symbolic extents (`symbols_of`), scheduled so that it
            is correct at all sizes, 0 and 1 included. If it is None or raises `Declined`, a kernel over any number of
            images loops over that for one image (`shared/mapped.py`).
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
