"""What slides over an image: paddings as Relay writes them, and the letters of the axes."""

from __future__ import annotations

from collections.abc import Sequence

from fusion.declined import Declined
from fusion.frontends.relay.call import Call

SPATIAL = {1: "W", 2: "HW", 3: "DHW"}
"""The letters of the axes that windows slide over."""


def per_axis(call: Call, name: str, rank: int, default: int = 1) -> tuple[int, ...]:
    """Return an attribute with a number for each spatial axis; one number stands for all."""
    values = call.ints(name, (default,) * rank)
    values = values * rank if len(values) == 1 else values
    if len(values) != rank:
        raise Declined(f"attribute {name} has {len(values)} numbers for {rank} axes")
    return values


def padding_of(call: Call, rank: int) -> tuple[int, ...]:
    """Return the attribute `padding` as all before and then all after: one number is for all sides, one for each axis
    for both of its sides."""
    pads = call.ints("padding", (0,))
    if len(pads) not in (1, rank, 2 * rank):
        raise Declined(f"attribute padding has {len(pads)} numbers for {rank} axes")
    if len(pads) == 1:
        return pads * (2 * rank)
    return pads * 2 if len(pads) == rank else pads


def check_window(image: Sequence[int], extents: Sequence[int], padding: Sequence[int]) -> None:
    """Check that a window fits the padded image at least once.

    Args:
        image, extents: Elements on each spatial axis of the image, and that the dilated window spans.
        padding: As `padding_of` returns it.

    Raises:
        Declined: It does not.
    """
    padded = [size + before + after for size, before, after in
              zip(image, padding[: len(image)], padding[len(image) :], strict=True)]
    if any(size < extent for size, extent in zip(padded, extents, strict=True)):
        raise Declined(f"a window of {_by(extents)} does not fit the padded input of {_by(padded)}")


def _by(sizes: Sequence[int]) -> str:
    return "x".join(map(str, sizes))
