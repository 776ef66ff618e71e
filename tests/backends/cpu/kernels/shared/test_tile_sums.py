"""The function that sums tiles of rows, against NumPy."""

from __future__ import annotations

import re
from dataclasses import fields

import numpy as np
import pytest
import tvm
from tvm import tirx

from backends.cpu.codegen.generate import generate_module
from backends.cpu.kernels.shared.tile_sums import TileCall, TileSums
from backends.tensorir.emit import Nest, int64
from fusion import context
from tests.backends.cpu.kernels.anchored import normal

FEW_STEPS, MANY_STEPS = 5, 37
"""Fewer and more than the lines of the result of the tallest tile, each of which one of the first steps fetches."""
VECTORS, WIDTH = 5, 2
HEIGHTS = (1, 3, 8)
BEGINS = (0, 2, 3)
"""The vectors that panels begin with: the last one overlaps the one before."""
PANELS = len(BEGINS)


def library(lanes: int, depth: int, fetches: bool) -> tvm.runtime.Module:
    """Return a kernel for each height and each of two products: (rows, weights, other weights, sums)."""
    panels = fetches and lanes == 8
    function = TileSums(
        HEIGHTS, WIDTH, lanes, 2, fetches_rows=fetches, fetches_results=fetches, fetches_panels=panels
    )
    named = {
        f"h{height}p{product}": kernel(function, height, product, depth)
        for height in range(1, HEIGHTS[-1] + 1)
        for product in range(2)
    }
    return generate_module(tvm.IRModule(named), context.resolve().target)


def kernel(function: TileSums, height: int, product: int, depth: int) -> tirx.PrimFunc:
    pitch, room, nest = depth + 2, max(function.heights) * WIDTH * function.lanes, Nest()
    nest.use_functions(function.llvm_ir)
    shapes = {"rows": (max(function.heights), pitch), "sums": (PANELS, room)}
    weights = (VECTORS, depth, function.lanes)
    rows, one, two, sums = (
        tirx.decl_buffer(shapes.get(name, weights), "float32", name) for name in ("rows", "one", "two", "sums")
    )
    for panel, vector in enumerate(BEGINS):
        at = TileCall(
            height=height, product=product, vector=vector, turn=panel, panels=PANELS, pitch=pitch, result_pitch=room,
            stride=depth * function.lanes, depth=depth, later=depth * function.lanes, later_bytes=4 * panel,
        )  # fmt: skip
        row, first, second = (tirx.BufferLoad(buffer, [int64(0)] * len(buffer.ty.shape)) for buffer in (rows, one, two))
        made = tirx.BufferLoad(sums, [int64(panel), int64(0)])
        nest.add(function.call(at, row, made, [first, second], [made, made] if function.fetches_results else []))
    func = tirx.PrimFunc([rows, one, two, sums], nest.finish())
    return func.with_attr("global_symbol", f"h{height}p{product}")


@pytest.mark.parametrize("depth", [1, FEW_STEPS, MANY_STEPS])
@pytest.mark.parametrize(("lanes", "fetches"), [(4, False), (8, True), (16, False), (16, True)])
def test_sums_are_right_at_all_heights(lanes: int, fetches: bool, depth: int) -> None:
    made = library(lanes, depth, fetches)
    for height in range(1, HEIGHTS[-1] + 1):
        for product in range(2):
            rows = normal((max(HEIGHTS), depth + 2), 1)
            weights = [normal((VECTORS, depth, lanes), seed) for seed in (2, 3)]
            room = max(HEIGHTS) * WIDTH * lanes
            sums = tvm.runtime.tensor(np.full((PANELS, room), 7, "float32"))
            made[f"h{height}p{product}"](*map(tvm.runtime.tensor, (rows, *weights)), sums)
            got = sums.numpy()
            for panel, vector in enumerate(BEGINS):
                packed = weights[product][vector : vector + WIDTH]
                want = np.einsum("ik,vkl->ivl", rows[:height, :depth].astype("float64"), packed.astype("float64"))
                np.testing.assert_allclose(got[panel, : want.size], want.ravel(), rtol=1e-5, atol=1e-5)


def test_sums_of_any_pitch_stay_in_registers() -> None:
    """Of 16: LLVM loaded the pixels of four steps at once, and kept 24 of them on the stack."""
    function = TileSums((4, 5, 6), 2, 8, 1, fetches_panels=True)
    numbers = {field.name: tirx.Var(field.name, "int64") for field in fields(TileCall)}
    rows, weights, sums = (tirx.decl_buffer((4096,), "float32", name) for name in ("rows", "weights", "sums"))
    nest = Nest()
    nest.use_functions(function.llvm_ir)
    row, packed, made = (tirx.BufferLoad(buffer, [int64(0)]) for buffer in (rows, weights, sums))
    nest.add(function.call(TileCall(**numbers), row, made, [packed]))
    func = tirx.PrimFunc([*numbers.values(), rows, weights, sums], nest.finish()).with_attr("global_symbol", "sum")
    target = context.resolve("llvm -mtriple=x86_64-linux-gnu -mcpu=haswell").target
    code = generate_module(tvm.IRModule({"sum": func}), target).inspect_source("asm")
    unrolled = [block for block in re.split(r"\n\.LBB\w+:", code) if block.count("vfmadd") >= 4 * 2 * 4]
    assert len(unrolled) == len(function.heights)
    assert not any(re.search(r"%ymm\d+, -?\d*\(%rsp\)", block) for block in unrolled)
