"""The function that sums tiles of rows, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import tirx

from backends.cpu.codegen.generate import generate_module
from backends.cpu.kernels.shared.tile_sums import TileCall, TileSums
from backends.tensorir.emit import Nest, int64
from fusion import context
from tests.backends.cpu.kernels.anchored import normal

DEPTH, PITCH, VECTORS, WIDTH = 5, 7, 5, 2
HEIGHTS = (1, 3, 4)
BEGINS = (0, 2, 3)
"""The vectors that panels begin with: the last one overlaps the one before."""
PANELS = len(BEGINS)


def library(lanes: int, heights: tuple[int, ...], fetches: bool) -> tvm.runtime.Module:
    """Return a kernel for each height and each of two products: (rows, weights, other weights, sums)."""
    panels = fetches and lanes == 8
    function = TileSums(
        heights, WIDTH, lanes, 2, fetches_rows=fetches, fetches_results=fetches, fetches_panels=panels
    )
    named = {
        f"h{height}p{product}": kernel(function, height, product)
        for height in range(1, heights[-1] + 1)
        for product in range(2)
    }
    return generate_module(tvm.IRModule(named), context.resolve().target)


def kernel(function: TileSums, height: int, product: int) -> tirx.PrimFunc:
    room, nest = max(function.heights) * WIDTH * function.lanes, Nest()
    nest.use_functions(function.llvm_ir)
    shapes = {"rows": (max(function.heights), PITCH), "sums": (PANELS, room)}
    weights = (VECTORS, DEPTH, function.lanes)
    rows, one, two, sums = (
        tirx.decl_buffer(shapes.get(name, weights), "float32", name) for name in ("rows", "one", "two", "sums")
    )
    for panel, vector in enumerate(BEGINS):
        at = TileCall(
            height=height, product=product, vector=vector, turn=panel, panels=PANELS, pitch=PITCH, result_pitch=room,
            stride=DEPTH * function.lanes, depth=DEPTH, later=DEPTH * function.lanes, later_bytes=4 * panel,
        )  # fmt: skip
        row, first, second = (tirx.BufferLoad(buffer, [int64(0)] * len(buffer.ty.shape)) for buffer in (rows, one, two))
        made = tirx.BufferLoad(sums, [int64(panel), int64(0)])
        nest.add(function.call(at, row, made, [first, second], [made, made] if function.fetches_results else []))
    func = tirx.PrimFunc([rows, one, two, sums], nest.finish())
    return func.with_attr("global_symbol", f"h{height}p{product}")


@pytest.mark.parametrize(("lanes", "fetches"), [(4, False), (8, True), (16, False), (16, True)])
def test_sums_are_right_at_all_heights(lanes: int, fetches: bool) -> None:
    made = library(lanes, HEIGHTS, fetches)
    for height in range(1, HEIGHTS[-1] + 1):
        for product in range(2):
            rows = normal((max(HEIGHTS), PITCH), 1)
            weights = [normal((VECTORS, DEPTH, lanes), seed) for seed in (2, 3)]
            room = max(HEIGHTS) * WIDTH * lanes
            sums = tvm.runtime.tensor(np.full((PANELS, room), 7, "float32"))
            made[f"h{height}p{product}"](*map(tvm.runtime.tensor, (rows, *weights)), sums)
            got = sums.numpy()
            for panel, vector in enumerate(BEGINS):
                packed = weights[product][vector : vector + WIDTH]
                want = np.einsum("ik,vkl->ivl", rows[:height, :DEPTH].astype("float64"), packed.astype("float64"))
                np.testing.assert_allclose(got[panel, : want.size], want.ravel(), rtol=1e-5, atol=1e-5)
