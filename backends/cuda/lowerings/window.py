"""The window of a convolution."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import relax


@dataclass(frozen=True)
class ConvolutionWindow:
    """Groups of a convolution, and its steps, distances of taps and borders, of rows and of columns."""

    groups: int
    strides: tuple[int, int]
    dilations: tuple[int, int]
    before: tuple[int, int]
    behind: tuple[int, int]

    @staticmethod
    def of(attrs: relax.Attrs) -> ConvolutionWindow:
        """Return that of a call's attributes."""
        padding = [int(n) for n in attrs.padding]
        top, left, bottom, right = padding if len(padding) == 4 else (padding * 2)[:2] * 2
        steps, taps = (tuple(int(n) for n in each) for each in (attrs.strides, attrs.dilation))
        around = (top, left), (bottom, right)
        return ConvolutionWindow(int(attrs.groups), (steps[0], steps[-1]), (taps[0], taps[-1]), *around)
