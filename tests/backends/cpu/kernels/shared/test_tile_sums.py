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
VECTORS, WIDTH, PRODUCTS = 5, 2, 2
BODIES = (1, 3, 8)
HEIGHTS = BODIES[-1]
BEGINS = (0, 2, 3)
"""The vectors that panels begin with: the last one overlaps the one before."""
PANELS = len(BEGINS)


def wide(number: tirx.PrimExpr) -> tirx.PrimExpr:
    """Return an int64 of a loop whose variable the passes narrow."""
    return tirx.Cast("int64", tirx.Cast("int32", number))


def kernel(function: TileSums, depth: int) -> tirx.PrimFunc:
    """Return all panels of all heights and of each of two products: (rows, weights, other weights, sums)."""
    pitch, nest = depth + 2, Nest()
    nest.use_functions(function.llvm_ir)
    shapes = {"rows": (HEIGHTS, pitch), "sums": (HEIGHTS, PRODUCTS, PANELS, HEIGHTS * WIDTH * function.lanes)}
    weights = (VECTORS, depth, function.lanes)
    rows, one, two, sums = (
        tirx.decl_buffer(shapes.get(name, weights), "float32", name) for name in ("rows", "one", "two", "sums")
    )
    with (
        nest.loop("last", HEIGHTS) as last, nest.loop("product", PRODUCTS) as product,
        nest.loop("panel", PANELS) as panel,
    ):  # fmt: skip
        at = TileCall(
            height=wide(last + 1), product=wide(product), vector=wide(tirx.min(panel * WIDTH, int64(BEGINS[-1]))),
            turn=wide(panel), panels=PANELS, pitch=pitch, result_pitch=shapes["sums"][-1],
            stride=depth * function.lanes, depth=depth, later=depth * function.lanes, later_bytes=wide(4 * panel),
        )  # fmt: skip
        row, first, second = (tirx.BufferLoad(buffer, [int64(0)] * len(buffer.ty.shape)) for buffer in (rows, one, two))
        made = tirx.BufferLoad(sums, [last, product, panel, int64(0)])
        nest.add(function.call(at, row, made, [first, second], [made, made] if function.fetches_results else []))
    return tirx.PrimFunc([rows, one, two, sums], nest.finish()).with_attr("global_symbol", "sums")


@pytest.mark.parametrize("depth", [1, FEW_STEPS, MANY_STEPS])
@pytest.mark.parametrize(("lanes", "fetches"), [(4, False), (8, True), (16, False), (16, True)])
def test_sums_are_right_at_all_heights(lanes: int, fetches: bool, depth: int) -> None:
    function = TileSums(
        BODIES, WIDTH, lanes, PRODUCTS, fetches_rows=fetches, fetches_results=fetches,
        fetches_panels=fetches and lanes == 8,
    )  # fmt: skip
    made = generate_module(tvm.IRModule({"sums": kernel(function, depth)}), context.resolve().target)
    rows = normal((HEIGHTS, depth + 2), 1)
    weights = [normal((VECTORS, depth, lanes), seed) for seed in (2, 3)]
    sums = tvm.runtime.tensor(np.full((HEIGHTS, PRODUCTS, PANELS, HEIGHTS * WIDTH * lanes), 7, "float32"))
    made["sums"](*map(tvm.runtime.tensor, (rows, *weights)), sums)
    got = sums.numpy()
    for last, product, panel in np.ndindex(HEIGHTS, PRODUCTS, PANELS):
        packed = weights[product][BEGINS[panel] :][:WIDTH].astype("float64")
        want = np.einsum("ik,vkl->ivl", rows[: last + 1, :depth].astype("float64"), packed)
        found = got[last, product, panel, : want.size]
        np.testing.assert_allclose(found, want.ravel(), rtol=1e-5, atol=1e-5, err_msg=f"{last} {product} {panel}")


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
