"""Matmuls of rows of which only a call knows how many there are, against their plain loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from unittest import mock

import numpy as np
import pytest
import tvm
from tvm import relax, tirx
from tvm.ir import Var
from tvm.relax import op

from backends.cpu.kernels.matmul.emit_open import emit_open_products
from backends.cpu.kernels.shared import open_contraction
from backends.cpu.kernels.shared.extents import Extents
from backends.cpu.kernels.shared.open_contraction import OpenBlocking
from backends.cpu.kernels.shared.row_tiles import RowTable
from backends.cpu.machine import Machine
from backends.cpu.schedule import schedule
from backends.tensorir.symbols import bind, symbols_of
from fusion import context
from fusion.declined import Declined
from fusion.extents import DerivedSize, Extent, with_derived
from fusion.structural import find, map_nodes
from fusion.symbolic.fit import Fit
from partition.access import MATMUL
from partition.slices import Slice, hide_outputs, write_slice
from tests.backends.cpu.kernels.anchored import normal, one_kernel
from tests.passes.modules import UNOPTIMISED, Build
from tests.symbolic.unified import unified
from tests.targets import AVX2, host_target, machine_code

Shapes = Callable[[int, int], list[tuple[int, ...]]]

PROBES = ({"b": 11, "n": 127}, {"b": 11, "n": 131}, {"b": 13, "n": 131})
SIZES = [(1, 1), (5, 1), (1, 13), (2, 16), (3, 43), (301, 1)]
DEPTH, WORDS = 40, 50


def constant(*shape: int) -> relax.Constant:
    return relax.const(normal(shape, shape[-1]))


def product(b: relax.BlockBuilder, rows: relax.Expr, channels: int) -> relax.Expr:
    return b.emit(op.matmul(rows, constant(DEPTH, channels)))


def normalised(b: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    return b.emit(op.nn.layer_norm(x, constant(DEPTH), constant(DEPTH), [-1]))


def heads(b: relax.BlockBuilder, made: relax.Expr, size: int) -> relax.Expr:
    """Return the heads of a product by themselves."""
    *lead, channels = (int(dim) for dim in made.ty.shape)
    split = b.emit(op.reshape(made, (*lead, channels // size, size)))
    return b.emit(op.permute_dims(split, [0, 2, 1, 3]))


def _residual(b: relax.BlockBuilder, x: relax.Var, residual: relax.Var) -> relax.Expr:
    return op.add(b.emit(op.nn.relu(b.emit(op.add(product(b, x, 70), constant(70))))), residual)


def _attention_inputs(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    rows = normalised(b, x)
    return relax.Tuple([rows, heads(b, product(b, rows, 72), 12), heads(b, product(b, rows, 48), 24)])


def _words(b: relax.BlockBuilder, words: relax.Var, places: relax.Var) -> relax.Expr:
    found = b.emit(op.take(constant(WORDS, DEPTH), words, 0, mode="clip"))
    return op.sigmoid(product(b, normalised(b, b.emit(op.add(found, places))), 90))


def _pixels(b: relax.BlockBuilder, image: relax.Var) -> relax.Expr:
    return op.clip(b.emit(op.add(product(b, image, 30), constant(30))), 0, 6)


def _flat(b: relax.BlockBuilder, image: relax.Var) -> relax.Expr:
    flat = b.emit(op.reshape(image, (image.ty.shape[0], DEPTH)))
    return op.add(product(b, flat, 24), constant(24))


def _gate(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    rows = normalised(b, x)
    gate, value = product(b, rows, 70), b.emit(op.matmul(rows, relax.const(normal((DEPTH, 70), 1))))
    return op.multiply(b.emit(op.sigmoid(gate)), value)


def _layers(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    hidden = b.emit(op.sigmoid(product(b, normalised(b, x), 64)))
    return op.add(b.emit(op.matmul(hidden, constant(64, DEPTH))), x)


def _three_layers(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    first = b.emit(op.nn.relu(product(b, x, 20)))
    second = b.emit(op.sigmoid(b.emit(op.matmul(first, constant(20, 100)))))
    return op.add(b.emit(op.matmul(second, constant(100, DEPTH))), x)


def _gated_layers(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    gated = b.emit(_gate(b, x))
    return op.add(b.emit(op.matmul(gated, constant(70, DEPTH))), x)


def _turned(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return op.nn.relu(product(b, b.emit(op.permute_dims(x, [0, 2, 1])), 24))


def _counted_through(b: relax.BlockBuilder, rows: relax.Var, residual: relax.Var) -> relax.Expr:
    """Return the product of all rows behind one another, as GPT-2 has them, plus what has them by batch."""
    return op.add(b.emit(op.reshape(product(b, rows, 70), residual.ty.shape)), residual)


def _heads_of_all(b: relax.BlockBuilder, x: relax.Var, added: relax.Var) -> relax.Expr:
    """Return the heads of all sequences behind one another, first by head and then by word, as DeBERTa has them."""
    rows = normalised(b, x)
    by_head = heads(b, product(b, rows, 72), 12)
    batch, count, words, size = (int(dim) for dim in by_head.ty.shape)
    flat = b.emit(op.add(b.emit(op.reshape(by_head, (batch * count, words, size))), added))
    by_word = b.emit(op.reshape(product(b, rows, 48), (batch, words, 4, 12)))
    turned = b.emit(op.permute_dims(by_word, [1, 0, 2, 3]))
    return relax.Tuple([flat, op.reshape(turned, (words, batch * 4, 12))])


def _heads_of_all_tokens(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    """Return the heads of all sequences behind one another, of products of all tokens behind one another, as torch has
    them."""
    batch, words, _ = (int(dim) for dim in x.ty.shape)
    rows = b.emit(op.reshape(normalised(b, x), (batch * words, DEPTH)))

    def split(channels: int, axes: list[int]) -> relax.Expr:
        made = b.emit(op.reshape(product(b, rows, channels), (batch, words, channels)))
        apart = b.emit(op.reshape(b.emit(op.add(made, constant(channels))), (batch, words, channels // 12, 12)))
        return b.emit(op.permute_dims(apart, axes))

    by_head, turned = split(72, [0, 2, 1, 3]), split(48, [1, 0, 2, 3])
    return relax.Tuple([op.reshape(by_head, (batch * 6, words, 12)), op.reshape(turned, (words, batch * 4, 12))])


CASES: dict[str, tuple[Build, Shapes]] = {
    "residual": (_residual, lambda b, n: [(b, n, DEPTH), (b, n, 70)]),
    "rows made for transposed products": (_attention_inputs, lambda b, n: [(b, n, DEPTH)]),
    "words": (_words, lambda b, n: [(b, n), (1, n, DEPTH)]),
    "gate": (_gate, lambda b, n: [(b, n, DEPTH)]),
    "layers": (_layers, lambda b, n: [(b, n, DEPTH)]),
    "three layers": (_three_layers, lambda b, n: [(b, n, DEPTH)]),
    "gated layers": (_gated_layers, lambda b, n: [(b, n, DEPTH)]),
    "turned": (_turned, lambda b, n: [(b, DEPTH, n)]),
    "pixels": (_pixels, lambda b, _: [(b, 3, 5, DEPTH)]),
    "heads of all sequences": (_heads_of_all, lambda b, n: [(b, n, DEPTH), (b * 6, n, 12)]),
    "heads of all tokens": (_heads_of_all_tokens, lambda b, n: [(b, n, DEPTH)]),
    "rows counted through": (_counted_through, lambda b, n: [(b * n, 1, DEPTH), (b, n, 70)]),
    "flat": (_flat, lambda b, _: [(b, 1, 1, DEPTH)]),
}


def kernel_of(case: str, lanes: int) -> tirx.PrimFunc:
    """Return the kernel with symbols, without its loops."""
    build, shapes = CASES[case]
    funcs = [one_kernel(build, _inputs(shapes(*sizes.values())), lanes) for sizes in PROBES]
    return unified(funcs, Fit(PROBES))


def _inputs(shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
    """Return an input of each shape; those without channels have words."""
    return [np.zeros(shape, "float32" if len(shape) > 2 else "int64") for shape in shapes]


def _numbers(func: tirx.PrimFunc, seed: int) -> list[np.ndarray]:
    """Return numbers for the parameters of a kernel without symbols; those that it writes are overwritten."""
    shapes = [(tuple(int(dim) for dim in param.ty.shape), str(param.ty.dtype.dtype)) for param in func.params]
    words = np.random.default_rng(seed)
    return [
        words.integers(0, WORDS, shape) if dtype == "int64" else normal(shape, seed + place)
        for place, (shape, dtype) in enumerate(shapes)
    ]


@lru_cache(maxsize=1)
def _plain(case: str, lanes: int) -> tuple[tirx.PrimFunc, tvm.runtime.Module]:
    """Return the kernel with symbols, and its plain loops in machine code."""
    func = kernel_of(case, lanes)
    return func, machine_code(tvm.IRModule({"plain": func.with_attr("global_symbol", "plain")}), UNOPTIMISED)


@pytest.mark.parametrize(("threads", "target"), [(1, "llvm"), (3, AVX2)])
@pytest.mark.parametrize("case", CASES)
def test_kernels_are_right_at_all_sizes(case: str, threads: int, target: str) -> None:
    are_right_at_all_sizes(case, context.resolve(target).compiler.machine, threads, target)


@pytest.mark.skipif(not context.resolve("llvm").compiler.machine.tiles, reason="the CPU has no tiles")
@pytest.mark.parametrize("case", CASES)
def test_kernels_in_terms_are_right_at_all_sizes(case: str) -> None:
    with mock.patch.object(open_contraction, "_terms_from", return_value=5):
        are_right_at_all_sizes(case, context.resolve("llvm").compiler.machine, 2)


def are_right_at_all_sizes(case: str, machine: Machine, threads: int, target: str = "llvm") -> None:
    func, plain = _plain(case, machine.vector_lanes)
    library = _library({"open": emit_open_products(func, machine, threads).func}, target)
    for b, n in (*SIZES, (0, 3), (2, 0)):
        arrays = _numbers(bind(func, {"b": b, "n": n}), 3)
        want, got = (list(map(tvm.runtime.tensor, arrays)) for _ in range(2))
        plain["plain"](*want)
        library["open"](*got)
        for made, expected in zip(got, want, strict=True):
            np.testing.assert_allclose(made.numpy(), expected.numpy(), rtol=1e-5, atol=1e-3, err_msg=f"{b} x {n}")


def _library(kernels: Mapping[str, tirx.PrimFunc], loops: str = "llvm") -> tvm.runtime.Module:
    named = {name: func.with_attr("global_symbol", name) for name, func in kernels.items()}
    return machine_code(tvm.IRModule(named), host_target(loops))


def test_a_call_cuts_the_tasks() -> None:
    """Very few rows are no work for threads, and many are shared out."""
    machine = context.resolve("llvm").compiler.machine
    func = kernel_of("residual", machine.vector_lanes)
    serial, parallel = (emit_open_products(func, machine, threads) for threads in (1, 2))
    loops = find(parallel.func.body, tirx.For)
    (tasks,) = (loop for loop in loops if loop.kind == tirx.ForKind.PARALLEL)
    assert not isinstance(tasks.extent, tirx.IntImm)
    (few,) = (each for each in find(parallel.func.body, tirx.IfThenElse) if each.else_case is not None)
    assert "T.parallel" not in few.then_case.script()
    assert "T.parallel" not in serial.func.script()
    assert "2x1 from" in parallel.tile


@pytest.mark.parametrize(("width", "registers"), [(4, 32), (3, 32), (2, 16), (1, 16)])
def test_tiles_serve_any_number_of_rows(width: int, registers: int) -> None:
    table = RowTable.of(width, 384, registers)
    shortest = len(table.rest) - table.tile.height
    for rows in range(200):
        whole = max(0, rows - shortest) // table.tile.height
        one, two = table.rest[rows - whole * table.tile.height]
        assert {one, two} <= {0, *table.heights}
        assert max(one, two) <= rows - whole * table.tile.height <= one + two


def test_rows_that_read_other_rows_are_declined() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return op.matmul(b.emit(op.flip(x, 1)), constant(DEPTH, 24))

    funcs = [one_kernel(build, [np.zeros((*sizes.values(), DEPTH), "float32")]) for sizes in PROBES]
    with pytest.raises(Declined, match="another row"):
        emit_open_products(unified(funcs, Fit(PROBES)), context.resolve("llvm").compiler.machine, 1)


def test_heads_of_all_tokens_have_open_rows_where_the_batch_is_told_by_them_alone() -> None:
    def build(b: relax.BlockBuilder, rows: relax.Var, added: relax.Var) -> relax.Expr:
        count, words, _ = map(int, added.ty.shape)
        made = b.emit(op.reshape(product(b, rows, 72), (count // 6, words, 72)))
        return op.add(b.emit(op.reshape(heads(b, made, 12), (count, words, 12))), added)

    inputs = [_inputs([(s["b"] * s["n"], DEPTH), (s["b"] * 6, s["n"], 12)]) for s in PROBES]
    func = unified([one_kernel(build, [each.astype("float32") for each in given]) for given in inputs], Fit(PROBES))
    made = schedule(func, context.resolve("llvm").compiler.machine, 1)
    assert (made.template, made.note) == (MATMUL, "")


@pytest.mark.parametrize("past", [0, 3])
def test_rows_are_stored_behind_a_cache(past: int) -> None:
    """Heads behind those of a cache, as rows of a joined tensor of which the kernel is told the length."""

    machine = context.resolve("llvm").compiler.machine

    def kernel(b: int, n: int, past: int) -> tirx.PrimFunc:
        func = one_kernel(_attention_inputs, [np.zeros((b, n, DEPTH), "float32")], machine.vector_lanes)
        for heads, size in ((6, 12), (2, 24)):
            made = next(param for param in func.params if tuple(map(int, param.ty.shape)) == (b, heads, n, size))
            place = Slice((b, heads, past + n, size), (0, 0, past, 0))
            func = hide_outputs(write_slice(func, made, (b, heads, n, size), place), [made])
        return func

    probes = [{**sizes, "all": sizes["n"] + more} for sizes, more in zip(PROBES, (50, 60, 71), strict=True)]
    funcs = [kernel(s["b"], s["n"], s["all"] - s["n"]) for s in probes]
    more = DerivedSize("past", (Extent(0, 1, ("all",)), Extent(0, -1, ("n",))))
    probes = [with_derived(sizes, [more]) for sizes in probes]
    func = unified(funcs, Fit(probes))
    told = {var.name: var for var in symbols_of(func)}
    func = map_nodes(func, (Var, lambda var: told["all"] - told["n"] if var.name == "past" else var))
    static = kernel(3, 5, past)
    library = _library({"open": emit_open_products(func, machine, 1).func, "static": schedule(static, machine, 1).func})
    got, want = ([tvm.runtime.tensor(array) for array in _numbers(static, 3)] for _ in range(2))
    library["open"](*got)
    library["static"](*want)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("words", [6, 7])
def test_every_other_row_of_as_many_as_a_call_has(words: int) -> None:
    """Of 7 words the first of the next sentence is not two behind the sixth, though 7 // 2 rows are made of each."""

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return product(b, b.emit(op.strided_slice(x, [1], [0], [int(x.ty.shape[1]) - 1], [2])), 24)

    machine = context.resolve("llvm").compiler.machine
    probes = [{**sizes, "half": sizes["n"] // 2} for sizes in PROBES]
    inputs = [np.zeros((*sizes.values(), DEPTH), "float32") for sizes in PROBES]
    func = unified([one_kernel(build, [x], machine.vector_lanes) for x in inputs], Fit(probes))
    n, half = (next(var for var in symbols_of(func) if var.name == name) for name in ("n", "half"))
    func = map_nodes(func, (Var, lambda var: tirx.floordiv(n, 2) if var.same_as(half) else var))
    static = bind(func, {"b": 3, "n": words})
    library = _library({"open": schedule(func, machine, 1).func, "static": schedule(static, machine, 1).func})
    got, want = ([tvm.runtime.tensor(array) for array in _numbers(static, 3)] for _ in range(2))
    library["open"](*got)
    library["static"](*want)
    np.testing.assert_allclose(got[-1].numpy(), want[-1].numpy(), rtol=1e-5, atol=1e-4)


def test_few_rows_are_one_tile_where_weights_are_read_from_memory() -> None:
    """Two tiles read the weights twice: 8 rows took 1.2 times as long as their static form."""
    machine = replace(context.resolve("llvm").compiler.machine, vector_registers=32, vector_lanes=16, l2_bytes=2**20)
    extents = Extents(
        outer=1, groups=1, height=1, width=1, channels=1536, taps=(), depth=384, lanes=16, input_bytes=4 * 384, step=1,
        per_cycle=2,
    )  # fmt: skip
    table = OpenBlocking.of([extents], extents, machine, 2).panels.table
    assert [table.rest[rows] for rows in range(1, 9)] == [(rows, 0) for rows in range(1, 9)]
