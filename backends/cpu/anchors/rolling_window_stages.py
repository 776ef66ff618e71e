"""Reads the kernel of a depthwise convolution with the pointwise ones before and behind it: its anchors, and the stages
between and behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm import tirx
from tvm.ir import Var
from tvm.s_tir.stmt import SBlock

from backends.cpu.anchors.attention_stages import is_at
from backends.cpu.anchors.roles import Output, compose, find_anchors
from backends.cpu.anchors.window import Window
from backends.cpu.templates.result import NotRecognized
from backends.cpu.templates.stages import Axis, Stage, dtype_of, loads, read_stages, shape_of
from partition.access import ANCHOR, DEPTHWISE, MATMUL

ROLLING_WINDOW = "rolling_window"

_FORMS = ([MATMUL, DEPTHWISE], [MATMUL, DEPTHWISE, MATMUL], [DEPTHWISE, MATMUL])


@dataclass(frozen=True)
class RollingSizes:
    """Sizes of `batch` images of height x width pixels and `channels` channels under a window.

    Attributes:
        depth: Channels from which a pointwise convolution makes them; 0 where the image is given.
        projected: Channels that a pointwise convolution makes of the window's result; 0 where none does.
    """

    batch: int
    height: int
    width: int
    depth: int
    channels: int
    window: Window
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
class Pointwise:
    """A pointwise convolution.

    Attributes:
        panels: Its packed weights.
        outputs: What is stored for each element of the product.
    """

    panels: Var
    outputs: tuple[Output, ...]


@dataclass(frozen=True)
class RollingStages:
    """The parts of `projection(depthwise(expansion(data)))`, all over N, H, W, C.

    Attributes:
        sizes: Of all.
        data: What the expansion reads; without one, the image under the window.
        expansion: The convolution before the window, whose one output is the image.
        taps: Weights of the window.
        convolved: What is stored for each element of the window's result; the rows of the projection where there is
            one.
        projection: The convolution behind.
    """

    sizes: RollingSizes
    data: Var
    expansion: Pointwise | None
    taps: Var
    convolved: tuple[Output, ...]
    projection: Pointwise | None
    kind: str = ROLLING_WINDOW


def has_rolling_form(func: tirx.PrimFunc) -> bool:
    """Return whether the anchors of `func` are a depthwise convolution and products with packed weights around it."""
    return [str(anchor.annotations[ANCHOR]) for anchor in find_anchors(func)] in _FORMS


def read_rolling_window(func: tirx.PrimFunc) -> RollingStages:
    """Return the parts of `func`.

    Raises:
        NotRecognized: It has another form.
    """
    if not has_rolling_form(func):
        raise NotRecognized("not a depthwise convolution between pointwise ones")
    anchors, stages = find_anchors(func), read_stages(func)
    place = next(i for i, anchor in enumerate(anchors) if str(anchor.annotations[ANCHOR]) == DEPTHWISE)
    before, behind = anchors[:place], anchors[place + 1 :]
    data, image, taps, expansion = _read_image(stages, before, anchors[place])
    convolved, projection = _read_results(func, stages, anchors[place], behind)
    products = [part.panels for part in (expansion, projection) if part is not None]
    if any(dtype_of(buffer) != "float32" for buffer in (data, image, *products)):
        raise NotRecognized("the products are not of float32")
    _check_loads(stages, [*(expansion.outputs if expansion else ()), *convolved])
    _check_loads(stages, projection.outputs if projection else ())
    batch, height, width, channels = shape_of(image)
    depth = shape_of(data)[-1] if expansion else 0
    projected = shape_of(behind[0].writes[0].source)[-1] if behind else 0
    window = Window.from_annotation(list(anchors[place].annotations["window"]))
    sizes = RollingSizes(batch, height, width, depth, channels, window, projected)
    return RollingStages(sizes, data, expansion, taps, convolved, projection)


def _read_image(
    stages: Sequence[Stage], before: Sequence[SBlock], convolution: SBlock
) -> tuple[Var, Var, Var, Pointwise | None]:
    """Return what the kernel reads, the image under the window, its weights, and what makes the image."""
    image, taps = _operands(convolution)
    made = _between(stages, None, convolution)
    if not before:
        if made:
            raise NotRecognized("something else than a pointwise convolution makes the image")
        return image, image, taps, None
    data, panels = _operands(before[0])
    return data, image, taps, Pointwise(panels, (_in_place(before[0], made, image),))


def _read_results(
    func: tirx.PrimFunc, stages: Sequence[Stage], convolution: SBlock, behind: Sequence[SBlock]
) -> tuple[tuple[Output, ...], Pointwise | None]:
    """Return what is made of the window's result, and the convolution that reads it."""
    last = behind[0] if behind else convolution
    epilogue = _between(stages, last, None)
    results = {_result(last), *(stage.buffer for stage in epilogue)}
    written = {stage.buffer for stage in stages}
    stored = [param for param in func.params if param in written]
    if not results.issuperset(stored):
        raise NotRecognized("a value between the convolutions is needed outside")
    outputs = compose(_result(last), epilogue, stored)
    if not behind:
        return outputs, None
    rows, panels = _operands(behind[0])
    middle = _between(stages, convolution, behind[0])
    return (_in_place(convolution, middle, rows),), Pointwise(panels, outputs)


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


def _operands(anchor: SBlock) -> tuple[Var, Var]:
    first, second = (region.source for region in anchor.reads if not region.source.same_as(_result(anchor)))
    return first, second
