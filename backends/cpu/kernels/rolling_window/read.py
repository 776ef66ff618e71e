"""Reads the kernel of a depthwise convolution or a pool with the convolutions before and behind it: its anchors, and
the stages between and behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tvm import tirx
from tvm.ir import Var
from tvm.s_tir.stmt import SBlock

from backends.cpu.kernels.shared.chains.image_producer import read_image_producer, steps_of
from backends.cpu.kernels.shared.chains.kernel_parts import between, check_loads, in_place, results_behind
from backends.cpu.kernels.shared.contraction import Contraction
from backends.cpu.kernels.shared.row_product import rows_times
from backends.cpu.kernels.shared.window import UnderWindow, Window
from backends.cpu.kernels.template import Marks
from backends.cpu.machine import Machine
from backends.tensorir.extents import typical
from backends.tensorir.roles import Output, Roles, anchor_of, operands_of, result_of
from backends.tensorir.stages import Stage, dims_of, dtype_of, read_stages
from fusion.declined import Declined
from partition.access import DEPTHWISE, IMAGE_PRODUCERS, MATMUL, POOL

ROLLING_WINDOW = "rolling_window"


@dataclass(frozen=True)
class RollingSizes(UnderWindow):
    """Sizes of the images under the window.

    Attributes:
        pools: Whether the window is that of a pool and not of a depthwise convolution.
        projected: Channels that a pointwise convolution makes of the window's result; 0 where none does.
    """

    pools: bool = False
    projected: int = 0


@dataclass(frozen=True)
class Projection:
    """A pointwise convolution of the window's result.

    Attributes:
        rows: The window's result, each pixel of which is a row.
        panels: The packed weights of the convolution.
        channels: Channels that it makes.
        outputs: What is stored for each element of its result.
    """

    rows: Var
    panels: Var
    channels: int
    outputs: tuple[Output, ...]

    def product(self, machine: Machine) -> Contraction:
        """Return the product of all rows."""
        return rows_times(self.rows, self.panels, self.channels, self.outputs, machine)


@dataclass(frozen=True)
class RollingStages:
    """The parts of `projection(window(convolution(data)))`, the window's image and result being N x H x W x C.

    Attributes:
        sizes: Sizes of the images and the window, and how many channels the projection makes.
        making: The convolution before the window, whose one output is the image; None where the kernel is given that.
        image: The buffer that the window slides over.
        taps: Weights of the depthwise convolution, KH x KW x C; None where the window is a pool's.
        stage: The window itself: the maximum or the sum that makes an element of its result.
        convolved: What is stored for each element of that; the rows of the projection where there is one.
        projection: The pointwise convolution that reads the window's result; None where none does.
    """

    sizes: RollingSizes
    making: Roles | None
    image: Var
    taps: Var | None
    stage: Stage
    convolved: tuple[Output, ...]
    projection: Projection | None


def has_rolling_form(marks: Marks) -> bool:
    """Return whether a kernel has a window, a depthwise convolution or a pool, with convolutions before or behind
    it."""
    return _places(marks) is not None


def read_rolling_window(func: tirx.PrimFunc) -> RollingStages:
    """Return the parts of `func`.

    Raises:
        Declined: It has another form.
    """
    places = _places(Marks.of(func))
    if places is None:
        raise Declined("not a window between convolutions")
    before, window, behind = places
    stages = read_stages(func)
    stage = next(stage for stage in stages if stage.buffer.same_as(result_of(window)))
    image, *taps = operands_of(window)
    making = _read_making(stages, before, window, image)
    convolved, projection = _read_results(func, stages, window, behind)
    operands = [*(making.operands if making else ()), *([projection.panels] if projection else ())]
    if any(dtype_of(buffer) != "float32" for buffer in (image, *operands)):
        raise Declined("the products are not of float32")
    check_loads(stages, [*(making.outputs if making else ()), *convolved])
    check_loads(stages, projection.outputs if projection else ())
    batch, height, width, channels = dims_of(image)
    steps, data = (0, image) if making is None else (steps_of(making), making.operands[0])
    sizes = RollingSizes(
        batch=batch, height=height, width=width, channels=channels, window=_window_of(window),
        steps=steps, input_bytes=4 * prod(map(typical, dims_of(data)[1:])), pools=not taps,
        projected=projection.channels if projection else 0,
    )  # fmt: skip
    return RollingStages(
        sizes=sizes,
        making=making,
        image=image,
        taps=taps[0] if taps else None,
        stage=stage,
        convolved=convolved,
        projection=projection,
    )


def _places(marks: Marks) -> tuple[SBlock | None, SBlock, SBlock | None] | None:
    """Return the blocks of the convolution before the window, of the window, and of the product behind it."""
    found = marks.blocks
    windows = [block for block in found if POOL in block.annotations or anchor_of(block) == DEPTHWISE]
    if len(windows) != 1:
        return None
    place = found.index(windows[0])
    before, behind = found[:place], found[place + 1 :]
    producers = [anchor_of(block) in IMAGE_PRODUCERS for block in before]
    products = [anchor_of(block) == MATMUL for block in behind]
    alone = not before and (POOL in windows[0].annotations or not behind)
    if producers not in ([], [True]) or products not in ([], [True]) or alone:
        return None
    return before[0] if before else None, windows[0], behind[0] if behind else None


def _window_of(block: SBlock) -> Window:
    return Window.from_annotation(list(block.annotations.get(POOL, block.annotations.get("window"))))


def _read_making(stages: Sequence[Stage], before: SBlock | None, window: SBlock, image: Var) -> Roles | None:
    """Return the convolution that makes the image."""
    if before is not None:
        return read_image_producer(stages, before, window, image)
    if between(stages, None, window):
        raise Declined("something else than a convolution makes the image")
    return None


def _read_results(
    func: tirx.PrimFunc, stages: Sequence[Stage], window: SBlock, behind: SBlock | None
) -> tuple[tuple[Output, ...], Projection | None]:
    """Return what is made of the window's result, and the convolution that reads it."""
    outputs = results_behind(func, stages, window if behind is None else behind)
    if behind is None:
        return outputs, None
    rows, panels = operands_of(behind)
    projection = Projection(rows, panels, dims_of(result_of(behind))[-1], outputs)
    return (in_place(window, between(stages, window, behind), rows),), projection
