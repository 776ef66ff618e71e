"""Networks as lists of operators with their work: conventional ones, and randomly wired ones (Xie et al., ICCV 2019).

Operators are those that a compiler with fusion has: bias, normalisation and activation are in the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import networkx

from placement.devices import OTHER, Work
from placement.tasks import PlacedOperator

_FLOAT = 4


@dataclass(frozen=True)
class Feature:
    """A result: of which operator, and its shape without the batch: channels and rows, which are as many as columns."""

    operator: int
    channels: int
    size: int


@dataclass
class NetworkBuilder:
    """Adds operators behind each other.

    Attributes:
        batch: Images or texts in one request.
    """

    batch: int
    operators: list[PlacedOperator] = field(default_factory=list)

    def add(
        self, kind: str, reads: Sequence[Feature], result: Feature, *, flops: float, weights: float = 0.0
    ) -> Feature:
        """Add an operator that reads values; flops, weights (elements) and shapes are of one image."""
        taken = tuple(value.operator for value in reads if value.operator >= 0)
        read = sum(self._bytes(value) for value in reads)
        written = self._bytes(result)
        work = Work(kind, flops * self.batch, read + written + weights * _FLOAT)
        name = f"{kind} {len(self.operators)}"
        self.operators.append(PlacedOperator(name, work, taken, weights * _FLOAT, written))
        return Feature(len(self.operators) - 1, result.channels, result.size)

    def _bytes(self, value: Feature) -> float:
        return float(value.channels * value.size * value.size * _FLOAT * self.batch)

    def convolution(self, source: Feature, channels: int, kernel: int = 1, stride: int = 1) -> Feature:
        """Add a convolution."""
        size = -(-source.size // stride)
        weights = float(channels * source.channels * kernel * kernel)
        result = Feature(0, channels, size)
        return self.add("convolution", [source], result, flops=2 * weights * size**2, weights=weights)

    def depthwise(self, reads: Sequence[Feature], stride: int = 1) -> Feature:
        """Add a sum of values and a depthwise convolution 3x3 of it in one kernel."""
        channels, size = reads[0].channels, -(-reads[0].size // stride)
        flops = 18.0 * channels * size**2 + len(reads) * channels * reads[0].size ** 2
        return self.add(OTHER, reads, Feature(0, channels, size), flops=flops, weights=9.0 * channels)

    def pointwise(self, reads: Sequence[Feature], channels: int | None = None, stride: int = 1) -> Feature:
        """Add a memory-bound operator: a sum, a concatenation, a pooling, a normalisation."""
        first = reads[0]
        result = Feature(0, channels or first.channels, -(-first.size // stride))
        return self.add(OTHER, reads, result, flops=8.0 * first.channels * first.size**2)

    def matmul(
        self, reads: Sequence[Feature], rows: int, inner: int, columns: int, *, constant: bool = True
    ) -> Feature:
        """Add a product of (rows, inner) by (inner, columns), by constant weights or of two values."""
        result = Feature(0, rows * columns, 1)
        weights = float(inner * columns) if constant else 0.0
        return self.add("matmul", reads, result, flops=2.0 * rows * inner * columns, weights=weights)


def _image() -> Feature:
    return Feature(-1, 3, 224)


def vgg16(net: NetworkBuilder) -> None:
    """Simonyan, Zisserman 2015."""
    value = _image()
    for channels, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            value = net.convolution(value, channels, 3)
        value = net.pointwise([value], stride=2)
    for inner, columns in ((25088, 4096), (4096, 4096), (4096, 1000)):
        value = net.matmul([value], 1, inner, columns)


def resnet50(net: NetworkBuilder) -> None:
    """He et al. 2016."""
    value = net.pointwise([net.convolution(_image(), 64, 7, 2)], stride=2)
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for block in range(blocks):
            inner, stride = 64 * 2**stage, 2 if stage and not block else 1
            left = net.convolution(net.convolution(net.convolution(value, inner), inner, 3, stride), 4 * inner)
            right = value if block else net.convolution(value, 4 * inner, 1, stride)
            value = net.pointwise([left, right])
    net.matmul([net.pointwise([value], stride=7)], 1, 2048, 1000)


_INCEPTIONS = (
    (64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64), (192, 96, 208, 16, 48, 64), (160, 112, 224, 24, 64, 64),
    (128, 128, 256, 24, 64, 64), (112, 144, 288, 32, 64, 64), (256, 160, 320, 32, 128, 128),
    (256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128),
)  # fmt: skip
"""Channels of the branches 1x1, 3x3 (before, in), 5x5 (before, in) and pooling, from 3a to 5b."""


def googlenet(net: NetworkBuilder) -> None:
    """Szegedy et al. 2015."""
    value = net.pointwise([net.convolution(_image(), 64, 7, 2)], stride=2)
    value = net.pointwise([net.convolution(net.convolution(value, 64), 192, 3)], stride=2)
    for index, (one, before3, three, before5, five, pooled) in enumerate(_INCEPTIONS):
        branches = [
            net.convolution(value, one),
            net.convolution(net.convolution(value, before3), three, 3),
            net.convolution(net.convolution(value, before5), five, 5),
            net.convolution(net.pointwise([value]), pooled),
        ]
        value = net.pointwise(branches, sum(branch.channels for branch in branches), 2 if index in (1, 6) else 1)
    net.matmul([net.pointwise([value], stride=7)], 1, 1024, 1000)


def bert_base(net: NetworkBuilder) -> None:
    """Devlin et al. 2019, 128 tokens."""
    rows, width = 128, 768
    value = Feature(-1, rows * width, 1)
    for _ in range(12):
        query, key, wide = (net.matmul([value], rows, width, width) for _ in range(3))
        scores = net.matmul([query, key], 12 * rows, 64, rows, constant=False)
        context = net.matmul([net.pointwise([scores]), wide], rows, 12 * rows, 64, constant=False)
        attention = net.matmul([Feature(context.operator, rows * width, 1)], rows, width, width)
        value = net.pointwise([attention, value])
        hidden = net.matmul([value], rows, width, 4 * width)
        value = net.pointwise([net.matmul([hidden], rows, 4 * width, width), value])


def _wired(net: NetworkBuilder, graph: networkx.Graph, source: Feature, channels: int) -> Feature:
    """Add a stage: each node sums what it reads and has a separable convolution; the first halve the image."""
    values: dict[int, Feature] = {}
    for node in sorted(graph):
        reads = [values[other] for other in sorted(graph[node]) if other < node]
        summed = net.depthwise(reads or [source], 1 if reads else 2)
        values[node] = net.convolution(summed, channels)
    return net.pointwise([values[node] for node in values if not any(other > node for other in graph[node])])


def randomly_wired(draw: Callable[[int], networkx.Graph]) -> Callable[[NetworkBuilder], None]:
    """Return the small regime of the paper, with 32 nodes a stage and 78 channels, wired as `draw` says."""

    def build(net: NetworkBuilder) -> None:
        value = net.convolution(net.convolution(_image(), 39, 3, 2), 78, 3, 2)
        for stage in range(3):
            value = _wired(net, draw(stage), value, 78 * 2**stage)
        net.matmul([net.pointwise([net.convolution(value, 1280)], stride=7)], 1, 1280, 1000)

    return build


CONVENTIONAL: Mapping[str, Callable[[NetworkBuilder], None]] = {
    "vgg16": vgg16, "resnet50": resnet50, "googlenet": googlenet, "bert_base": bert_base,
}  # fmt: skip
RANDOMLY_WIRED: Mapping[str, Callable[[NetworkBuilder], None]] = {
    "WS(4, 0.75)": randomly_wired(lambda stage: networkx.connected_watts_strogatz_graph(32, 4, 0.75, seed=stage)),
    "ER(0.2)": randomly_wired(lambda stage: networkx.gnp_random_graph(32, 0.2, seed=stage)),
    "BA(5)": randomly_wired(lambda stage: networkx.barabasi_albert_graph(32, 5, seed=stage)),
}
NETWORKS = {**CONVENTIONAL, **RANDOMLY_WIRED}


def operators_of(name: str, batch: int = 1) -> list[PlacedOperator]:
    """Return the operators of a network."""
    net = NetworkBuilder(batch)
    NETWORKS[name](net)
    return net.operators
