"""Reads the kernel of a depthwise convolution or a pool with the convolutions before and behind it: its anchors, and
the stages between and behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tvm import tirx
from tvm.ir import Var
from tvm.s_tir.stmt import SBlock
from tvm_ffi.structural import structural_walk

from backends.cpu.anchors.attention_stages import is_at
from backends.cpu.anchors.contraction import Contraction
from backends.cpu.anchors.matmul import rows_times
from backends.cpu.anchors.roles import Output, Roles, compose
from backends.cpu.anchors.window import Window
from backends.cpu.templates.result import NotRecognized
from backends.cpu.templates.stages import Axis, Stage, dtype_of, loads, read_stages, shape_of
from fusion.context import Machine
from partition.access import ANCHOR, CONV2D, DEPTHWISE, IMAGE_CONV2D, IMAGE_MAKERS, MATMUL, POOL

ROLLING_WINDOW = "rolling_window"


@dataclass(frozen=True)
class RollingSizes:
    """Sizes of `batch` images of height x width pixels and `channels` channels under a window.

    Attributes:
        steps: Of k, for each pixel and channel, of the convolution that makes the image; 0 where it is given.
        input_bytes: Of one image that the kernel reads.
        pools: Whether the window is that of a pool and not of a depthwise convolution.
        projected: Channels that a pointwise convolution makes of the window's result; 0 where none does.
    """

    batch: int
    height: int
    width: int
    channels: int
    window: Window
    steps: int
    input_bytes: int
    pools: bool = False
    projected: int = 0

    @property
    def rows(self) -> int:
        """Rows of the result."""
        return self.window.output(self.height, self.width)[0]

    @property
    def columns(self) -> int:
        """Columns of the result."""
        return self.window.output(self.height, self.width)[1]

    @property
    def ring_rows(self) -> int:
        """Rows of the padded image under one row of the result."""
        return int(self.window.rows_under(1))

    @property
    def ring_columns(self) -> int:
        """Columns of the padded image, those under no pixel of the result left out where they are padding."""
        window = self.window
        under = (self.columns - 1) * window.strides[1] + (window.kernel[1] - 1) * window.dilation[1] + 1
        return max(window.padding[1] + self.width, under)


@dataclass(frozen=True)
class Projection:
    """A pointwise convolution of the window's result.

    Attributes:
        rows: That result.
        panels: Its packed weights.
        channels: That it makes.
        outputs: What is stored for each element of the product.
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
        sizes: Of all.
        making: The convolution before the window, whose one output is the image; None where that is given.
        image: What is under the window.
        taps: Weights of a depthwise convolution; None for a pool.
        stage: What the window computes.
        convolved: What is stored for each element of the window's result; the rows of the projection where there is
            one.
        projection: The convolution behind.
    """

    sizes: RollingSizes
    making: Roles | None
    image: Var
    taps: Var | None
    stage: Stage
    convolved: tuple[Output, ...]
    projection: Projection | None
    kind: str = ROLLING_WINDOW


def has_rolling_form(func: tirx.PrimFunc) -> bool:
    """Return whether `func` has a window, a depthwise convolution or a pool, with convolutions before or behind it."""
    return _places(func) is not None


def read_rolling_window(func: tirx.PrimFunc) -> RollingStages:
    """Return the parts of `func`.

    Raises:
        NotRecognized: It has another form.
    """
    places = _places(func)
    if places is None:
        raise NotRecognized("not a window between convolutions")
    before, window, behind = places
    stages = read_stages(func)
    stage = next(stage for stage in stages if stage.buffer.same_as(_result(window)))
    image, *taps = [region.source for region in window.reads if not region.source.same_as(_result(window))]
    making = _read_making(stages, before, window, image)
    convolved, projection = _read_results(func, stages, window, behind)
    operands = [*(making.operands if making else ()), *([projection.panels] if projection else ())]
    if any(dtype_of(buffer) != "float32" for buffer in (image, *operands)):
        raise NotRecognized("the products are not of float32")
    _check_loads(stages, [*(making.outputs if making else ()), *convolved])
    _check_loads(stages, projection.outputs if projection else ())
    batch, height, width, channels = shape_of(image)
    steps, data = (0, image) if making is None else (_steps(making), making.operands[0])
    sizes = RollingSizes(
        batch, height, width, channels, _window_of(window), steps, 4 * prod(shape_of(data)[1:]), not taps,
        projection.channels if projection else 0,
    )  # fmt: skip
    return RollingStages(sizes, making, image, taps[0] if taps else None, stage, convolved, projection)


def _places(func: tirx.PrimFunc) -> tuple[SBlock | None, SBlock, SBlock | None] | None:
    """Return the blocks of the convolution before the window, of the window, and of the product behind it."""
    found: list[SBlock] = []
    structural_walk(func.body, (SBlock, lambda block: found.append(block) if _is_part(block) else None))
    windows = [block for block in found if POOL in block.annotations or _anchor(block) == DEPTHWISE]
    if len(windows) != 1:
        return None
    place = found.index(windows[0])
    before, behind = found[:place], found[place + 1 :]
    makers = [_anchor(block) in IMAGE_MAKERS for block in before]
    products = [_anchor(block) == MATMUL for block in behind]
    alone = not before and (POOL in windows[0].annotations or not behind)
    if makers not in ([], [True]) or products not in ([], [True]) or alone:
        return None
    return before[0] if before else None, windows[0], behind[0] if behind else None


def _is_part(block: SBlock) -> bool:
    return ANCHOR in block.annotations or POOL in block.annotations


def _anchor(block: SBlock) -> str:
    return str(block.annotations.get(ANCHOR, ""))


def _window_of(block: SBlock) -> Window:
    return Window.from_annotation(list(block.annotations.get(POOL, block.annotations.get("window"))))


def _steps(making: Roles) -> int:
    """Return how many products each element of the image is the sum of."""
    data, packed = (shape_of(operand) for operand in making.operands)
    if making.kind == CONV2D:
        groups, _, *taps = packed[:-1]
        if groups != 1:
            raise NotRecognized("a grouped convolution makes the image")
        return prod(taps)
    return prod(packed[1:-1]) if making.kind == IMAGE_CONV2D else data[-1]


def _read_making(stages: Sequence[Stage], before: SBlock | None, window: SBlock, image: Var) -> Roles | None:
    """Return the convolution that makes the image."""
    made = _between(stages, None, window)
    if before is None:
        if made:
            raise NotRecognized("something else than a convolution makes the image")
        return None
    attrs = {str(key): value for key, value in before.annotations.items()}
    operands = tuple(region.source for region in before.reads if not region.source.same_as(_result(before)))
    return Roles(_anchor(before), attrs, operands, shape_of(_result(before)), (_in_place(before, made, image),))


def _read_results(
    func: tirx.PrimFunc, stages: Sequence[Stage], window: SBlock, behind: SBlock | None
) -> tuple[tuple[Output, ...], Projection | None]:
    """Return what is made of the window's result, and the convolution that reads it."""
    last = window if behind is None else behind
    epilogue = _between(stages, last, None)
    results = {_result(last), *(stage.buffer for stage in epilogue)}
    written = {stage.buffer for stage in stages}
    stored = [param for param in func.params if param in written]
    if not results.issuperset(stored):
        raise NotRecognized("a value between the convolutions is needed outside")
    outputs = compose(_result(last), epilogue, stored)
    if behind is None:
        return outputs, None
    rows, panels = (region.source for region in behind.reads if not region.source.same_as(_result(behind)))
    projection = Projection(rows, panels, shape_of(_result(behind))[-1], outputs)
    return (_in_place(window, _between(stages, window, behind), rows),), projection


def _in_place(anchor: SBlock, behind: Sequence[Stage], buffer: Var) -> Output:
    """Return how `buffer` follows from the result of `anchor`, each element from that at its own coordinates."""
    result = _result(anchor)
    (output,) = compose(result, [stage for stage in behind if not stage.buffer.same_as(result)], [buffer])
    axes = map(Axis, output.coordinates, shape_of(buffer))
    if shape_of(buffer) != shape_of(result) or not all(map(is_at, output.indices, axes)):
        raise NotRecognized(f"{buffer.name} is moved between the convolutions")
    return output


def _check_loads(stages: Sequence[Stage], outputs: Sequence[Output]) -> None:
    """Raise where an epilogue reads what the kernel does not keep."""
    made = {stage.buffer for stage in stages}
    if any(load.source in made for output in outputs for load in loads(output.value)):
        raise NotRecognized("an epilogue reads a value between the convolutions")


def _between(stages: Sequence[Stage], first: SBlock | None, last: SBlock | None) -> list[Stage]:
    """Return the stages after that of `first` and before that of `last`."""
    places = {stage.buffer: place for place, stage in enumerate(stages)}
    start = 0 if first is None else places[_result(first)] + 1
    return list(stages[start : None if last is None else places[_result(last)]])


def _result(anchor: SBlock) -> Var:
    return anchor.writes[0].source
