"""Static facts of a kernel, for reports."""

from __future__ import annotations

from dataclasses import dataclass, replace

from backends.sized_work import SizedWork
from fusion.extents import Sizes

UNSCHEDULED = "unscheduled"
"""Stands for the name of a template if none supports the kernel."""


@dataclass(frozen=True)
class KernelInfo:
    """One kernel of a compiled module.

    Attributes:
        name: The symbol of its PrimFunc.
        ops: The operators that it computes, in order.
        work: The kind of its anchors: "matmul" or "convolution"; "other" if it has none.
        template: The template that scheduled it.
        tile: The schedule in words.
        flops: Floating-point operations of one call, at typical sizes if they are symbolic.
        bytes: The least bytes that one call reads and writes, at typical sizes if they are symbolic.
        written: The part of `bytes` that it writes.
        cycles: The estimated cycles of the slowest thread; 0 if the template has no estimate.
        note: The templates that declined before, with their reasons.
        estimate_us: The least time of a call on a machine of the target's kind, in microseconds, by the roofline.
        sized: Flops and bytes as functions of symbolic sizes; None if they are static or not known.
    """

    name: str
    ops: tuple[str, ...]
    work: str
    template: str
    tile: str
    flops: int
    bytes: int
    written: int = 0
    cycles: float = 0.0
    note: str = ""
    estimate_us: float = 0.0
    sized: SizedWork | None = None

    @property
    def read(self) -> int:
        """The least bytes that one call reads."""
        return self.bytes - self.written

    def at(self, sizes: Sizes) -> KernelInfo:
        """Return it with flops and bytes at these sizes; the estimate stays that at typical ones."""
        if self.sized is None:
            return self
        read, written = (self.sized.bytes_at(sizes, written=each) for each in (False, True))
        return replace(self, flops=self.sized.flops_at(sizes), bytes=read + written, written=written)
