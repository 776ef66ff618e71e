"""Convolutions and windows in a row, each with its epilogue, in one kernel and against float64."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from tvm import relax, tirx

from backends.cpu.kernels.shared.window import Window
from backends.tensorir.kernel_info import kernel_info
from tests.backends.cpu.kernels.anchored import (
    Epilogue,
    Ran,
    always,
    check,
    convolve,
    kernels_of,
    normal,
    one_kernel,
    run,
)
from tests.backends.cpu.kernels.drawn import epilogues, paddings, pairs

op = relax.op
WINDOW = Window((3, 3), (1, 1), (1, 1, 1, 1), (1, 1))
STRIDED = Window((3, 3), (2, 2), (0, 0, 0, 0), (1, 1))
POINTWISE = Window((1, 1), (1, 1), (0, 0, 0, 0), (1, 1))
HALVES = Window((2, 2), (2, 2), (0, 0, 0, 0), (1, 1))
STEM = Window((7, 7), (2, 2), (3, 3, 3, 3), (1, 1))


@dataclass(frozen=True)
class Layer:
    """A convolution by weights O x I x H x W, or the maximum under a window, and what stands behind it."""

    window: Window
    weights: np.ndarray | None
    epilogue: Epilogue
    groups: int = 1

    def relax(self, x: relax.Expr) -> relax.Expr:
        at = self.window.strides, self.window.padding, self.window.dilation
        if self.weights is None:
            return op.nn.max_pool2d(x, self.window.kernel, *at, layout="NHWC")
        return op.nn.conv2d(x, relax.const(self.weights), *at, self.groups, data_layout="NHWC")

    def numpy(self, image: np.ndarray) -> np.ndarray:
        if self.weights is None:
            return max_pool(image, self.window)
        at = self.window.strides, self.window.padding, self.window.dilation
        return convolve(image, self.weights, *at, self.groups)


class Chain(ABC):
    """`layers` in a row over an image of `shape` (N, H, W, C), which lies N, C, H, W if `by_planes`."""

    by_planes: bool
    seed: int

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]: ...

    @property
    @abstractmethod
    def layers(self) -> list[Layer]: ...

    def arrays(self) -> list[np.ndarray]:
        """Return the image, and what the epilogues read."""
        data = normal(self.shape, self.seed)
        given = np.ascontiguousarray(data.transpose(0, 3, 1, 2)) if self.by_planes else data
        return [given, *(array for layer in self.layers for array in layer.epilogue.arrays())]

    def relax(self, b: relax.BlockBuilder, x: relax.Var, *extra: relax.Var) -> relax.Expr:
        x = b.emit(op.permute_dims(x, [0, 2, 3, 1])) if self.by_planes else x
        for layer in self.layers:
            many = len(layer.epilogue.arrays())
            x, extra = layer.epilogue.relax(b, layer.relax(x), extra[:many]), extra[many:]
        return x

    def numpy(self) -> list[np.ndarray]:
        results = [normal(self.shape, self.seed).astype("float64")]
        for layer in self.layers:
            (image,) = results
            results = layer.epilogue.numpy(layer.numpy(image))
        return results

    def run(self, target: str = "llvm", many: int = 2) -> Ran:
        return run(self.relax, self.arrays(), target, many, judge=always)

    def asked(self) -> tirx.PrimFunc:
        """Return the kernel that the judge is asked about."""
        return one_kernel(self.relax, self.arrays())

    def check(self, template: str, target: str, many: int) -> None:
        """Run it, compare with float64 and see that `template` made all of it."""
        ran = self.run(target, many)
        check(ran, self.numpy())
        assert ran.templates() == [template]

    def check_products(self, template: str, products: int) -> None:
        """See that `products` of a multiplication and a sum are counted, and little else."""
        ((name, kernel),) = kernels_of(self.relax, self.arrays(), "llvm", 2, judge=always).items()
        info = kernel_info(name, kernel)
        assert products < info.flops < 1.25 * products
        assert info.template == template


def check_reason(answer: str, reason: str) -> None:
    """See that a judge's `answer` gives `reason`; "" is none."""
    assert reason in answer
    assert bool(reason) == bool(answer)


def scaled(shape: Sequence[int], seed: int) -> np.ndarray:
    """Return weights O x I x H x W whose sums of products have the scale of their image."""
    return normal(shape, seed) / np.float32(np.prod(shape[1:]) ** 0.5)


def max_pool(image: np.ndarray, window: Window) -> np.ndarray:
    top, left, bottom, right = window.padding
    padded = np.pad(image, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=-np.inf)
    rows, columns = window.output(*image.shape[1:3])
    (kh, kw), (sh, sw), (dh, dw) = window.kernel, window.strides, window.dilation
    taps = (
        padded[:, dh * i : dh * i + sh * rows : sh, dw * j : dw * j + sw * columns : sw][:, :rows, :columns]
        for i in range(kh) for j in range(kw)
    )  # fmt: skip
    return np.maximum.reduce(list(taps))


def spans(window: Window) -> tuple[int, int]:
    """Return the height and width that the taps span."""
    height, width = ((k - 1) * d + 1 for k, d in zip(window.kernel, window.dilation, strict=True))
    return height, width


@st.composite
def windows(draw: st.DrawFn) -> Window:
    window = Window(draw(st.tuples(st.integers(1, 5), st.integers(1, 5))), (1, 1), (0, 0, 0, 0), draw(pairs))
    strides = tuple(min(stride, span) for stride, span in zip(draw(pairs), spans(window), strict=True))
    most = [span - 1 for span in spans(window)] * 2
    padding = tuple(min(pad, limit) for pad, limit in zip(draw(paddings), most, strict=True))
    return Window(window.kernel, strides, padding, window.dilation)


# Of a layer that another one follows.
inner_epilogues = epilogues().map(lambda steps: tuple(step for step in steps if step not in ("fork", "regroup")))
