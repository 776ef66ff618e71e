"""Reads the kernel of a pointwise and a depthwise convolution: two anchors, and the stages between and behind them."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx
from tvm.ir import Var

from backends.cpu.anchors.attention_stages import is_at
from backends.cpu.anchors.roles import Output, compose, find_anchors
from backends.cpu.anchors.window import Window
from backends.cpu.templates.result import NotRecognized
from backends.cpu.templates.stages import Axis, dtype_of, read_stages, shape_of
from partition.access import ANCHOR, DEPTHWISE, MATMUL

POINTWISE_DEPTHWISE = "pointwise_depthwise"


@dataclass(frozen=True)
class PairSizes:
    """Sizes of `batch` images of height x width pixels, whose `depth` channels become `channels` before the window."""

    batch: int
    height: int
    width: int
    depth: int
    channels: int
    window: Window

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
class PairStages:
    """The parts of `depthwise(epilogue(pointwise(data)))`, all over N, H, W, C.

    Attributes:
        sizes: Of all.
        data, panels: What the pointwise product reads: its image and its packed weights.
        expanded: What is stored for each element of the product: the image that the window reads.
        taps: Weights of the window.
        outputs: What is stored for each element of the depthwise convolution.
    """

    sizes: PairSizes
    data: Var
    panels: Var
    expanded: Output
    taps: Var
    outputs: tuple[Output, ...]
    kind: str = POINTWISE_DEPTHWISE


def is_pair(func: tirx.PrimFunc) -> bool:
    """Return whether the two anchors of `func` are a product with packed weights and a depthwise convolution."""
    return [str(anchor.annotations[ANCHOR]) for anchor in find_anchors(func)] == [MATMUL, DEPTHWISE]


def read_pair(func: tirx.PrimFunc) -> PairStages:
    """Return the parts of `func`.

    Raises:
        NotRecognized: It has another form.
    """
    if not is_pair(func):
        raise NotRecognized("not a pointwise and a depthwise convolution")
    anchors = find_anchors(func)
    product, convolution = (anchor.writes[0].source for anchor in anchors)
    (data, panels), (image, taps) = (
        [region.source for region in anchor.reads if not region.source.same_as(anchor.writes[0].source)]
        for anchor in anchors
    )
    stages = read_stages(func)
    place = next(place for place, stage in enumerate(stages) if stage.buffer.same_as(convolution))
    between = [stage for stage in stages[:place] if not stage.buffer.same_as(product)]
    behind = stages[place + 1 :]
    made = {convolution, *(stage.buffer for stage in behind)}
    (expanded,) = compose(product, between, [image])
    if any(dtype_of(buffer) != "float32" for buffer in (data, panels, image, convolution)):
        raise NotRecognized("the products are not of float32")
    if shape_of(image) != shape_of(product) or not _is_in_place(expanded):
        raise NotRecognized("the expanded image is moved before the window")
    batch, height, width, channels = shape_of(image)
    window = Window.from_annotation(list(anchors[1].annotations["window"]))
    sizes = PairSizes(batch, height, width, shape_of(data)[-1], channels, window)
    outputs = compose(convolution, behind, [param for param in func.params if param in made])
    return PairStages(sizes, data, panels, expanded, taps, outputs)


def _is_in_place(output: Output) -> bool:
    """Return whether an element is stored at its own coordinates."""
    axes = map(Axis, output.coordinates, shape_of(output.buffer))
    return all(map(is_at, output.indices, axes))
