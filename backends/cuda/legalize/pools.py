"""Averages of windows that are not all as wide."""

from __future__ import annotations

from tvm import relax, te, tirx, topi

from backends.cuda.legalize.threads import Expr
from backends.tensorir.emit import int64
from backends.tensorir.legalize.common import NARROW, FLegalize
from fusion.bindings import data_of
from fusion.shapes import static_shape


def _adaptive_average(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Windows that are not all as wide are as wide as the widest, of which those behind the end count nothing; TVM's
    loops have another number of turns for each."""
    x, layout = data_of(call), str(call.attrs.layout)
    axes = [at for at, letter in enumerate(layout) if letter in "DHW"]
    shape, made = static_shape(x), static_shape(call)
    if all(shape[axis] % made[axis] == 0 for axis in axes):
        sizes = [made[axis] for axis in axes]
        pool = topi.nn.adaptive_pool if len(axes) == 2 else getattr(topi.nn, f"adaptive_pool{len(axes)}d")
        return builder.call_te(pool, x, sizes, "avg", layout, primfunc_name_hint=call.op.name[9:])
    dtype = str(x.ty.dtype)
    wide = "float32" if dtype in NARROW else dtype

    def ends(axis: int, cell: Expr) -> tuple[Expr, Expr]:
        extent, out = shape[axis], made[axis]
        return tirx.floordiv(cell * extent, out), tirx.floordiv((cell + 1) * extent + out - 1, out)

    def pooled(data: te.Tensor) -> te.Tensor:
        widths = [max(-(-(cell + 1) * shape[axis] // made[axis]) - cell * shape[axis] // made[axis]
                      for cell in range(made[axis])) for axis in axes]  # fmt: skip
        steps = [te.reduce_axis((0, width), f"r{axis}") for axis, width in zip(axes, widths, strict=True)]

        def total(*at: Expr) -> Expr:
            place, inside = list(at), []
            for axis, step in zip(axes, steps, strict=True):
                first, end = ends(axis, at[axis])
                place[axis] = first + step
                inside.append(first + step < end)
            value = tirx.if_then_else(tirx.all(*inside), data(*place).astype(wide), tirx.const(0, wide))
            return te.sum(value, axis=steps)

        def mean(*at: Expr) -> Expr:
            count: Expr = int64(1)
            for axis in axes:
                first, end = ends(axis, at[axis])
                count = count * (end - first)
            return (sums(*at) / count.astype(wide)).astype(dtype)

        sums = te.compute(made, total, "pool_sum")
        return te.compute(made, mean, "pool_avg")

    return builder.call_te(pooled, x, primfunc_name_hint=call.op.name[9:])


POOLS: dict[str, FLegalize] = {f"relax.nn.adaptive_avg_pool{rank}d": _adaptive_average for rank in (1, 2, 3)}
