"""Operators that TVM's legalization knows no form of for CPUs."""

from __future__ import annotations

from tvm import relax, te, tirx, topi

from backends.tensorir.legalize.common import FLegalize


def _fused_multiply_add(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    return builder.call_te(lambda x, y, z: topi.add(topi.multiply(x, y), z), *call.args, primfunc_name_hint="ewise_fma")


def _pixel_shuffle(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Return [..., C, H * r, W * r] of [..., C * r * r, H, W]."""
    factor = int(call.attrs.upscale_factor)

    def shuffle(x: te.Tensor) -> te.Tensor:
        *front, channels, height, width = x.shape

        def at(*place: tirx.Var) -> tirx.PrimExpr:
            *outer, channel, row, column = place
            inside = (channel * factor + row % factor) * factor + column % factor
            return x(*outer, inside, row // factor, column // factor)

        shape = (*front, channels // (factor * factor), height * factor, width * factor)
        return te.compute(shape, at, name="pixel_shuffle")

    return builder.call_te(shuffle, *call.args, primfunc_name_hint="pixel_shuffle")


def _multinomial(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Return for each number the first place where the sums of the probabilities of its row are above it, at most the
    last: how many sums but the last are not."""
    dtype = str(call.ty.dtype.dtype)

    def draw(sums: te.Tensor, numbers: te.Tensor, rows: te.Tensor) -> te.Tensor:
        place = te.reduce_axis((0, sums.shape[1] - 1), "place")

        def at(draw: tirx.Var, column: tirx.Var) -> tirx.PrimExpr:
            is_below = sums(rows(draw, column), place) <= numbers(draw, column)
            return te.sum(is_below.astype(dtype), axis=place)

        return te.compute(numbers.shape, at, name="multinomial")

    probabilities, numbers, rows = call.args
    sums = builder.emit_te(topi.cumsum, probabilities, 1, primfunc_name_hint="cumsum")
    return builder.call_te(draw, sums, numbers, rows, primfunc_name_hint="multinomial_from_uniform")


MISSING: dict[str, FLegalize] = {
    "relax.ewise_fma": _fused_multiply_add,
    "relax.nn.pixel_shuffle": _pixel_shuffle,
    "relax.multinomial_from_uniform": _multinomial,
}
