"""Kernels with several anchors, drawn by seed from the ranges of real networks, and the kernels that they would be
otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
from tvm import relax
from tvm.relax import op

from backends.tensorir.space import Point, Space
from bench.tuning.thin import thinned, with_whole_space
from fusion.context import Context
from fusion.machine_tuning.drawn import DrawnKernel, drawn_kernels
from tuning.alone import SpaceQuestion
from tuning.known import Knowledge
from tuning.parts import split_kernel, weights_of
from tuning.task import ALONE
from tuning.workloads import Draw, Expr, Workload, random_weight

_PART_POINTS = 40
"""Of a part beside the default, at most."""
_BEST_POINTS = 8
"""Of a part, those of the least estimates, at least."""
_DRAWN = 300
"""Workloads of a kind, at most, until some of them are in one kernel."""
_ALL = 1 << 30
"""Points: of a space all."""
_UNCOUNTED = 0.0
"""Operations of a workload, which nobody asks for here."""


@dataclass(frozen=True)
class ChainKernel:
    """A kernel with several anchors.

    Attributes:
        whole: It.
        parts: What it is taken apart into, in order of execution; None where a part has no space.
    """

    whole: DrawnKernel
    parts: tuple[DrawnKernel | None, ...]


def drawn_chains(seed: int, count: int, ctx: Context, most: int) -> list[ChainKernel]:
    """Return `count` kernels, of each kind as many, that the estimates put into one kernel.

    Args:
        most: The points of each space beside the default, at most.
    """
    each = -(-count // len(_KINDS))
    found = [list(islice(_chains(draw, seed, ctx, most), each)) for draw in _KINDS[:count]]
    return [kernel for some in zip(*found, strict=False) for kernel in some][:count]


def _chains(drawn: Callable[[Draw], Workload], seed: int, ctx: Context, most: int) -> Iterator[ChainKernel]:
    draw = np.random.default_rng(seed)
    for kernel in drawn_kernels([drawn(draw) for _ in range(_DRAWN)], ctx, _ALL):
        source = kernel.question.source
        if ctx.compiler.estimate_fusion(source) is not None and len(split_kernel(source)) > 1:
            yield ChainKernel(with_whole_space(kernel, most), tuple(_parts(kernel, ctx)))


def _parts(kernel: DrawnKernel, ctx: Context) -> Iterator[DrawnKernel | None]:
    sources = {str(place): part for place, part in enumerate(split_kernel(kernel.question.source))}
    weights = set(weights_of(kernel.question.source))
    known = Knowledge.of(None, ctx.compiler).kernels(sources)
    for name, source in sources.items():
        if name not in known:
            yield None
            continue
        alone = replace(known[name], task=replace(known[name].task, kind=ALONE))
        constants = frozenset(place for place, parameter in enumerate(source.params) if parameter in weights)
        space = alone.choices.space
        tiled = [point for point in space if has_tile(point) and point != space.default]
        best = sorted(tiled, key=lambda point: point.cycles)[:_BEST_POINTS]
        rest = thinned(Space(space.default, tiled.__iter__), _PART_POINTS)
        points = list(dict.fromkeys([*best, *rest]))
        workload = replace(kernel.workload, name=f"{kernel.workload.name}, part {name}")
        yield DrawnKernel(workload, SpaceQuestion(source, alone, constants, points))


TileOf = Callable[[Mapping[str, int]], tuple[int, int]]
"""The axes of a point -> pixels and vectors of a register tile in it."""


def tile_of(name: str) -> TileOf:
    """Return what finds the register tile of this name."""
    return lambda axes: (axes[f"{name}.height"] * axes[f"{name}.width"], axes[f"{name}.vectors"])


def tiles_of_parts(chain: ChainKernel) -> list[TileOf | None]:
    """Return, for each part, what finds its register tile in a point of the whole; None where a point does not choose
    one.

    Raises:
        ValueError: The family is none of those that are drawn.
    """
    families = [part.question.known.choices.family if part else "" for part in chain.parts]
    last = len(families) - 1
    match chain.whole.question.known.choices.family:
        case "rolling_window":
            window = families.index("depthwise_conv2d")
            return [*[tile_of("tile")] * window, _window_tile, *[None] * (last - window)]
        case "conv_chain":
            return [tile_of("first"), tile_of("second")]
        case "attention":
            first, *_, second = (place for place, family in enumerate(families) if family == "batch_matmul")
            named = {first: tile_of("scores"), second: tile_of("values")}
            return [named.get(place) for place in range(last + 1)]
        case other:
            raise ValueError(f"which tiles of a {other} are those of its parts?")


def _window_tile(axes: Mapping[str, int]) -> tuple[int, int]:
    return axes["columns"], axes["tile.vectors"]


def has_tile(point: Point) -> bool:
    """Return whether a point of a part has a register tile of pixels and channels; Winograd's has another one."""
    return "tile.vectors" in point.axes() and "transform" not in point.axes()


def _images(name: str, shape: tuple[int, ...], layers: Sequence[tuple[int, int, int, bool]]) -> Workload:
    """Return convolutions in a row of channels-last images: for each, its channels, its kernel, its stride, and whether
    it is depthwise. All but a pointwise last one end with a ReLU of at most 6."""

    def build(builder: relax.BlockBuilder, inputs: list[relax.Var]) -> Expr:
        out, channels = builder.emit(op.permute_dims(inputs[0], [0, 3, 1, 2])), shape[-1]
        for place, (made, kernel, stride, depthwise) in enumerate(layers):
            groups = channels if depthwise else 1
            weights = random_weight(made, channels // groups, kernel, kernel)
            out = op.nn.conv2d(out, weights, strides=stride, padding=kernel // 2, groups=groups)
            out = builder.emit(op.add(builder.emit(out), random_weight(1, made, 1, 1)))
            if place < len(layers) - 1 or kernel > 1:
                out = builder.emit(op.clip(out, 0, 6))
            channels = made
        return op.permute_dims(out, [0, 2, 3, 1])

    return Workload(name, (shape,), _UNCOUNTED, build)


def _residual(draw: Draw) -> Workload:
    """An inverted residual, as in MobileNetV2 and its kin."""
    side, stride = int(draw.choice([14, 20, 24, 28, 32, 40, 48, 56, 64, 80])), int(draw.choice([1, 2]))
    channels, made = (8 * int(draw.integers(2, 9)) for _ in range(2))
    wide = channels * int(draw.choice([3, 4, 6]))
    layers = [(wide, 1, 1, False), (wide, 3, stride, True), (made, 1, 1, False)]
    return _images(f"residual {side}x{side}x{channels} {wide}/{stride} {made}", (1, side, side, channels), layers)


def _convolutions(draw: Draw) -> Workload:
    """Two convolutions, as the first ones of detectors."""
    side, first, second = int(draw.choice([96, 128, 160, 192, 224, 256, 320])), *map(int, draw.choice([1, 2], 2))
    channels, middle, made = int(draw.choice([3, 8, 16])), 8 * int(draw.integers(1, 6)), 8 * int(draw.integers(2, 9))
    kernel = int(draw.choice([1, 3]))
    layers = [(middle, 3, first, False), (made, kernel, second if kernel == 3 else 1, False)]
    name = f"convolutions {side}x{side}x{channels} {middle}/{first} {made} {kernel}x{kernel}/{layers[-1][2]}"
    return _images(name, (1, side, side, channels), layers)


def _attention(draw: Draw) -> Workload:
    """Two products of activations, with a softmax between."""
    heads, channels = int(draw.integers(2, 13)), int(draw.choice([32, 48, 64, 80, 96]))
    rows = int(draw.integers(48, 400))

    def build(builder: relax.BlockBuilder, inputs: list[relax.Var]) -> Expr:
        turned = builder.emit(op.permute_dims(inputs[1], [0, 2, 1]))
        scores = builder.emit(op.matmul(inputs[0], turned))
        return op.matmul(builder.emit(op.nn.softmax(scores)), inputs[2])

    return Workload(f"attention {heads}x{rows}x{channels}", ((heads, rows, channels),) * 3, _UNCOUNTED, build)


_KINDS: Sequence[Callable[[Draw], Workload]] = (_residual, _convolutions, _attention)
