"""What a window over planes reads, and what it computes of it."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from tvm import tirx
from tvm.ir import Var

from backends.cpu.kernels.shared.window import Window
from backends.tensorir.emit import Expr
from backends.tensorir.roles import Roles
from backends.tensorir.stages import shape_of


@dataclass(frozen=True)
class Planes:
    """The operator: `count` planes of `height` x `width` become as many of `out_height` x `out_width`."""

    window: Window
    count: int
    height: int
    width: int
    out_height: int
    out_width: int
    weighted: bool

    def source_row(self, y: int, ky: int) -> int:
        """Return the image's row under a tap, outside of it where the tap is on the padding."""
        return y * self.window.strides[0] + ky * self.window.dilation[0] - self.window.padding[0]

    def taps(self, rows: int) -> dict[int, list[tuple[int, int]]]:
        """Return what reads each row that `rows` output rows see: (output row, row of the window), from the first
        row of the first window on; where these are all output rows, only what lies inside the image."""
        found: dict[int, list[tuple[int, int]]] = {}
        whole = rows == self.out_height
        for y in range(rows):
            for ky in range(self.window.kernel[0]):
                row = self.source_row(y, ky)
                if not whole or 0 <= row < self.height:
                    found.setdefault(row + self.window.padding[0], []).append((y, ky))
        return dict(sorted(found.items()))

    @property
    def out_size(self) -> int:
        """Elements of a plane of the result."""
        return self.out_height * self.out_width

    @property
    def pads_rows(self) -> bool:
        top = self.window.padding[0]
        return top > 0 or bool(self.window.rows_under(self.out_height) - top > self.height)

    @property
    def pads_columns(self) -> bool:
        kernel, stride, dilation = self.window.kernel[1], self.window.strides[1], self.window.dilation[1]
        left = self.window.padding[1]
        return left > 0 or (self.out_width - 1) * stride + (kernel - 1) * dilation - left >= self.width


@dataclass(frozen=True)
class PlanarWindow:
    """A depthwise convolution or a pool of planes.

    Attributes:
        data: The image, N x C x H x W.
        weight: C x KH x KW; None for a pool.
        planes: Its sizes.
        takes_max: Whether it is the maximum of what a window sees, and not the sum.
    """

    data: Var
    weight: Var | None
    planes: Planes
    takes_max: bool

    @staticmethod
    def of(roles: Roles) -> PlanarWindow:
        """Return the window that the anchor is."""
        data, *weights = roles.operands
        return PlanarWindow(
            data, weights[0] if weights else None, planes_of(roles), bool(int(roles.attrs["takes_max"]))
        )

    @property
    def identity(self) -> Expr:
        """What a window that sees nothing gives."""
        return tirx.const(-inf if self.takes_max else 0.0, "float32")


def planes_of(roles: Roles) -> Planes:
    """Return the operator that the anchor is."""
    data, *weights = roles.operands
    batch, channels, height, width = shape_of(data)
    window = Window.from_annotation(roles.attrs["window"])
    _, _, out_height, out_width = roles.shape
    return Planes(
        window=window,
        count=batch * channels,
        height=height,
        width=width,
        out_height=out_height,
        out_width=out_width,
        weighted=bool(weights),
    )
