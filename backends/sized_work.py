"""What a kernel computes and moves at any sizes of the symbols in its shapes.

A leaf: reports of saved modules need nothing of the compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

from fusion.extents import Extent, Sizes

Fit = Callable[[Sequence[int]], Extent]
"""Returns the extent that is each of these numbers at the sizes that they are known at."""


@dataclass(frozen=True)
class SizedCount:
    """`factor` times the product of `extents`."""

    factor: int
    extents: tuple[Extent, ...]

    def at(self, sizes: Sizes) -> int:
        """Return the number at these sizes."""
        return self.factor * prod(extent.at(sizes) for extent in self.extents)


@dataclass(frozen=True)
class Traffic:
    """Bytes of a tensor: no more than it has, as tiles read it again from a cache, and no more than is accessed, as a
    gather reads a few rows of its table.

    Attributes:
        whole: What it has.
        accessed: What each loop nest reads or writes.
        is_written: Whether one writes it.
    """

    whole: SizedCount
    accessed: tuple[SizedCount, ...]
    is_written: bool

    def at(self, sizes: Sizes) -> int:
        """Return the bytes at these sizes."""
        return min(self.whole.at(sizes), sum(count.at(sizes) for count in self.accessed))


@dataclass(frozen=True)
class SizedWork:
    """What one call of a kernel does.

    Attributes:
        flops: Floating-point operations of each of its loop nests.
        traffic: Of its parameters.
    """

    flops: tuple[SizedCount, ...]
    traffic: tuple[Traffic, ...]

    def flops_at(self, sizes: Sizes) -> int:
        """Return all floating-point operations at these sizes."""
        return sum(count.at(sizes) for count in self.flops)

    def bytes_at(self, sizes: Sizes, *, written: bool) -> int:
        """Return the bytes at these sizes that it writes, or those that it reads."""
        return sum(tensor.at(sizes) for tensor in self.traffic if tensor.is_written is written)

    def extents(self) -> Iterator[Extent]:
        """Yield all that it depends on."""
        counts = [*self.flops, *(count for each in self.traffic for count in (each.whole, *each.accessed))]
        yield from (extent for count in counts for extent in count.extents)


def join_work(counted: Sequence[SizedWork], fit: Fit) -> SizedWork:
    """Return what one kernel does at all sizes, of what it does at some.

    Raises:
        Declined: A number is no such extent.
        ValueError: It is not the same kernel at these.
    """

    def join(counts: Sequence[SizedCount]) -> SizedCount:
        pairs = zip(*(count.extents for count in counts), strict=True)
        return SizedCount(counts[0].factor, tuple(fit([each.constant for each in same]) for same in pairs))

    def join_all(counts: Sequence[Sequence[SizedCount]]) -> tuple[SizedCount, ...]:
        return tuple(join(same) for same in zip(*counts, strict=True))

    def join_traffic(same: Sequence[Traffic]) -> Traffic:
        accessed = join_all([tensor.accessed for tensor in same])
        return Traffic(join([tensor.whole for tensor in same]), accessed, same[0].is_written)

    tensors = zip(*(work.traffic for work in counted), strict=True)
    return SizedWork(join_all([work.flops for work in counted]), tuple(map(join_traffic, tensors)))
