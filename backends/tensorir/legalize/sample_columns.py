"""Bilinear samples of images with many channels, which become columns: all of them have the same places."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import relax, te, tirx

from backends.tensorir.legalize.common import Expr

_MANY_CHANNELS = 8
"""From which on channels are columns. On one thread of an Emerald Rapids shared with other work 64 of 56 x 56 took 0.71
ms as images, and take 0.22 to 0.51 in three runs; 8 of 40 x 40, twice, 0.154 and 0.078. As images, places that are
computed once are no faster: 1.1 ms for the 64, as each lane reads a number by itself."""

FAR = float(1 << 30)
"""Pixels from the image, beyond which places are taken for this one: int32 has room for their neighbours."""


def has_columns(image: relax.Expr, call: relax.Call) -> bool:
    """Return whether `sample_columns` is for `call`, an `image.grid_sample` of `image`."""
    is_image = int(image.ty.ndim) == 4 and int(image.ty.shape[1]) >= _MANY_CHANNELS
    return is_image and str(call.attrs.method) == "bilinear" and str(call.attrs.padding_mode) != "reflection"


def sample_columns(builder: relax.BlockBuilder, image: relax.Expr, grid: relax.Expr, call: relax.Call) -> relax.Expr:
    """Return the pixels of `image` [N, C, H, W] at the places of `grid` [N, (x, y), H', W'], each from four around it.

    Which these are, -1 outside, and their weights are tensors [N, 4, H', W']; the image is turned to [N, H * W, C], of
    which a place reads four rows.
    """
    batch, channels, height, width = map(int, image.ty.shape)
    places = _Places(height, width, bool(call.attrs.align_corners), str(call.attrs.padding_mode) == "border")
    flat = builder.emit(relax.op.reshape(image, (batch, channels, height * width)))
    rows = builder.emit(relax.op.permute_dims(flat, [0, 2, 1]))
    pixels = builder.emit(builder.call_te(places.pixels, grid, primfunc_name_hint="pixels"))
    weights = builder.emit(builder.call_te(places.weights, grid, primfunc_name_hint="weights"))
    sampled = builder.emit(builder.call_te(_sample, rows, pixels, weights, primfunc_name_hint="grid_sample"))
    return relax.op.permute_dims(sampled, [0, 3, 1, 2])


@dataclass(frozen=True)
class _Places:
    """The four pixels around each place of a grid: corner `c` is a lower one where `c // 2`, a right one where `c % 2`.

    Attributes:
        height, width: Of the image.
        corners: Whether -1 and 1 are the middles of the outermost pixels, not their edges.
        is_border: Whether a place outside is the nearest one inside; otherwise what is outside is 0.
    """

    height: int
    width: int
    corners: bool
    is_border: bool

    def pixels(self, grid: te.Tensor) -> te.Tensor:
        def pixel(n: Expr, corner: Expr, h: Expr, w: Expr) -> Expr:
            y, x = (
                te.min(te.max(te.floor(place), -FAR), FAR).astype("int32") + step.astype("int32")
                for place, step in self._around(grid, (n, h, w), corner)
            )
            if self.is_border:
                y, x = (te.max(te.min(at, size - 1), 0) for at, size in ((y, self.height), (x, self.width)))
                return y * self.width + x
            inside = tirx.all(y >= 0, y < self.height, x >= 0, x < self.width)
            return tirx.Select(inside, y * self.width + x, tirx.const(-1, "int32"))

        return te.compute((grid.shape[0], 4, *grid.shape[2:]), pixel, name="pixels")

    def weights(self, grid: te.Tensor) -> te.Tensor:
        def weight(n: Expr, corner: Expr, h: Expr, w: Expr) -> Expr:
            down, across = (
                tirx.Select(step > 0, place - te.floor(place), 1 - (place - te.floor(place)))
                for place, step in self._around(grid, (n, h, w), corner)
            )
            return down * across

        return te.compute((grid.shape[0], 4, *grid.shape[2:]), weight, name="weights")

    def _around(self, grid: te.Tensor, at: tuple[Expr, Expr, Expr], corner: Expr) -> list[tuple[Expr, Expr]]:
        """Return the place along y and x, in pixels, and how far behind its floor the corner is."""
        n, h, w = at
        steps = tirx.floordiv(corner, 2), tirx.floormod(corner, 2)
        places = []
        for axis, size in ((1, self.height), (0, self.width)):
            place = source(grid[n, axis, h, w], size, self.corners)
            places.append(te.min(te.max(place, 0), size - 1) if self.is_border else place)
        return list(zip(places, steps, strict=True))


def _sample(rows: te.Tensor, pixels: te.Tensor, weights: te.Tensor) -> te.Tensor:
    """Return the sum of four of `rows` [N, H * W, C] for each place: [N, H', W', C]."""

    def element(n: Expr, h: Expr, w: Expr, c: Expr) -> Expr:
        def term(corner: int) -> Expr:
            pixel = pixels[n, corner, h, w]
            value = tirx.Select(pixel >= 0, rows[n, te.max(pixel, 0), c], tirx.const(0, str(rows.dtype)))
            return value * weights[n, corner, h, w]

        return term(0) + term(1) + term(2) + term(3)

    return te.compute((rows.shape[0], *pixels.shape[2:], rows.shape[2]), element, name="grid_sample")


def source(place: Expr, size: Expr, corners: bool) -> Expr:
    """Return where -1 to 1, of the middles (`corners`) or the edges of the outermost pixels, lies in pixels."""
    return (place + 1) * (size - 1) / 2 if corners else -0.5 + (place + 1) * size / 2
