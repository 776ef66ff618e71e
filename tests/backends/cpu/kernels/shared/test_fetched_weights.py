"""Which contractions fetch packed weights, and that the parts of tiles are the whole of the next block."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import tirx
from tvm.ir import TensorLoad, Var

from backends.cpu.codegen.generate import generate_module
from backends.cpu.costs import FETCHED_TILES, FEW_TILES
from backends.cpu.kernels.shared.contraction import Blocking, emit
from backends.cpu.kernels.shared.register_tile import RegisterTile
from backends.cpu.kernels.shared.row_product import rows_times
from backends.cpu.kernels.shared.split import Split
from backends.tensorir.emit import Nest
from backends.tensorir.roles import Output
from fusion import context
from fusion.structural import find, map_nodes
from tests.backends.cpu.kernels.anchored import normal
from tests.targets import AVX2

DEPTH, TALLEST, VECTORS = 5, 3, 2
AVX512 = "llvm -mcpu=skylake-avx512"


def product(rows: int, panels: int, block: int, chunks: int = 1, target: str = AVX2) -> tirx.PrimFunc:
    """Return rows by packed weights of so many panels, in tiles of `TALLEST` rows and blocks of panels."""
    machine = context.resolve(target, threads=1).compiler.machine
    lanes = machine.vector_lanes
    channels = panels * VECTORS * lanes
    data, packed, made = (
        tirx.decl_buffer(shape, "float32", name)
        for name, shape in (
            ("data", (rows, DEPTH)), ("packed", (panels * VECTORS, DEPTH, lanes)), ("made", (rows, channels))
        )
    )  # fmt: skip
    where, result = (Var("row", "int64"), Var("channel", "int64")), Var("accumulator", "float32")
    nest = Nest()
    work = rows_times(data, packed, channels, (Output(made, where, result, where, result),), machine)
    emit(nest, [work], Blocking(RegisterTile(TALLEST, 1, VECTORS), 1, chunks, block))
    return tirx.PrimFunc([data, packed, made], nest.finish())


def fetches(func: tirx.PrimFunc) -> list[TensorLoad]:
    """Return the elements whose lines `func` fetches of weights."""
    calls = (found.value for found in find(func.body, tirx.Evaluate) if "llvm.prefetch" in str(found.value))
    loads = (load for call in calls for load in find(call, TensorLoad))
    return [load for load in loads if load.source.same_as(func.params[1])]


def marking(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return `func` with a further buffer, [2, weights], into which it stores a one for each element it fetches."""
    vectors, depth, lanes = (int(extent) for extent in func.params[1].ty.shape)
    marks = tirx.decl_buffer((2 * vectors * depth * lanes,), "float32", "marks")

    def mark(statement: Any) -> Any:
        loads = [load for load in find(statement, TensorLoad) if load.source.same_as(func.params[1])]
        if "llvm.prefetch" not in str(statement.value) or not loads:
            return statement
        vector, step, lane = loads[0].indices
        return tirx.BufferStore(marks, tirx.const(1, "float32"), [(vector * depth + step) * lanes + lane])

    body = map_nodes(func.body, (tirx.Evaluate, mark))
    return tirx.PrimFunc([*func.params, marks], body).with_attr("global_symbol", "marking")


@pytest.mark.parametrize(
    ("rows", "panels", "block", "chunks"), [(8, 7, 2, 1), (8, 6, 2, 1), (60, 5, 1, 1), (7, 9, 2, 2)]
)
def test_tiles_fetch_the_next_block_together(rows: int, panels: int, block: int, chunks: int) -> None:
    """Each line of it, and hardly anything else: behind the block that a task ends with there is nothing."""
    func = marking(product(rows, panels, block, chunks))
    lanes = 8
    data, packed = normal((rows, DEPTH), 1), normal((panels * VECTORS, DEPTH, lanes), 2)
    made = tvm.runtime.tensor(np.zeros((rows, panels * VECTORS * lanes), "float32"))
    marks = tvm.runtime.tensor(np.zeros(2 * packed.size, "float32"))
    library = generate_module(tvm.IRModule({"marking": func}), context.resolve("llvm").target)
    library["marking"](*map(tvm.runtime.tensor, (data, packed)), made, marks)
    want = np.einsum("ik,vkl->ivl", data.astype("float64"), packed.astype("float64")).reshape(rows, -1)
    np.testing.assert_allclose(made.numpy(), want, rtol=1e-5, atol=1e-5)
    panel = VECTORS * DEPTH * lanes
    starts = [Split(panels, chunks).start(chunk) for chunk in range(chunks)]
    behind = np.concatenate([task[block:] for task in np.split(np.arange(panels), starts[1:])])
    lines = marks.numpy().reshape(2 * panels, panel // 16, 16).any(axis=2)
    assert lines[behind].all(), np.argwhere(~lines[behind])
    others = np.setdiff1d(np.arange(2 * panels), behind)
    assert lines[others].sum() <= 3 * chunks, "parts are rounded up; where nothing is left, one line again"


@pytest.mark.parametrize(
    ("rows", "panels", "block", "target", "each_step"),
    [
        (8, 7, 2, AVX2, 1), (FEW_TILES * TALLEST, 7, 2, AVX2, VECTORS), (8, 2, 2, AVX2, 0),
        ((FETCHED_TILES + 1) * TALLEST, 7, 2, AVX2, 0), (8, 7, 2, AVX512, VECTORS),
    ],
)  # fmt: skip
def test_narrow_vectors_are_not_fetched_one_by_one(
    rows: int, panels: int, block: int, target: str, each_step: int
) -> None:
    """A step of few tiles fetches its own vectors `PREFETCH_STEPS` ahead, as does a step of vectors that are lines; of
    more tiles one line of the next block, if there is one and the tiles are few."""
    func = product(rows, panels, block, target=target)
    heights = len({rows // TALLEST, -(-rows // TALLEST)}) if rows % TALLEST else 1
    assert len(fetches(func)) == each_step * heights
