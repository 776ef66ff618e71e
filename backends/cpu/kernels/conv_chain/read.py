"""Reads the kernel of two convolutions of which the second reads what the first makes."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tvm import tirx

from backends.cpu.kernels.shared.chains.image_producer import read_image_producer, steps_of
from backends.cpu.kernels.shared.chains.kernel_parts import check_loads, results_behind
from backends.cpu.kernels.shared.window import UnderWindow, Window
from backends.cpu.kernels.template import Marks
from backends.tensorir.extents import typical
from backends.tensorir.roles import Roles, operands_of, roles_of
from backends.tensorir.stages import dims_of, dtype_of, read_stages, shape_of
from fusion.declined import Declined
from partition.access import CONV2D, IMAGE_PRODUCERS, MATMUL

CONV_CHAIN = "conv_chain"


@dataclass(frozen=True)
class ChainSizes(UnderWindow):
    """Sizes of the images between the convolutions, under the window of the second.

    Attributes:
        made: Channels that the second convolution makes.
    """

    made: int

    @property
    def second_steps(self) -> int:
        """Of k, for each pixel and channel, of the second convolution."""
        return prod(self.window.kernel) * self.channels


@dataclass(frozen=True)
class ChainStages:
    """The parts of `second(first(data))`, all images being N x H x W x C.

    Attributes:
        sizes: Of both.
        first: The convolution whose one output is the image between.
        second: The one that reads it; a pointwise one is a matmul.
    """

    sizes: ChainSizes
    first: Roles
    second: Roles


def has_chain_form(marks: Marks) -> bool:
    """Return whether a kernel has two convolutions, not both of which are matmuls."""
    kinds = marks.anchors
    return len(kinds) == 2 and kinds[0] in IMAGE_PRODUCERS and kinds[1] in (CONV2D, MATMUL) and set(kinds) != {MATMUL}


def read_conv_chain(func: tirx.PrimFunc) -> ChainStages:
    """Return the parts of `func`.

    Raises:
        Declined: It has another form.
    """
    marks = Marks.of(func)
    if not has_chain_form(marks):
        raise Declined("not two convolutions")
    stages, (before, last) = read_stages(func), marks.anchor_blocks
    image, panels = operands_of(last)
    first = read_image_producer(stages, before, last, image)
    outputs = results_behind(func, stages, last)
    if any(dtype_of(buffer) != "float32" for buffer in (image, panels, *first.operands)):
        raise Declined("the products are not of float32")
    check_loads(stages, [*first.outputs, *outputs])
    second = roles_of(last, outputs)
    return ChainStages(_sizes(first, second), first, second)


def _sizes(first: Roles, second: Roles) -> ChainSizes:
    (batch, height, width, channels), input_bytes = first.shape, 4 * prod(map(typical, dims_of(first.operands[0])[1:]))
    window = Window((1, 1), (1, 1), (0, 0, 0, 0), (1, 1))
    if second.kind == CONV2D:
        window = Window.from_annotation(second.attrs["window"])
        if shape_of(second.operands[1])[0] != 1:
            raise Declined("the second convolution has groups")
    sizes = ChainSizes(
        batch=batch,
        height=height,
        width=width,
        channels=channels,
        window=window,
        steps=steps_of(first),
        input_bytes=input_bytes,
        made=second.shape[-1],
    )
    if sizes.skips_rows:
        raise Declined("the window skips rows")
    return sizes
