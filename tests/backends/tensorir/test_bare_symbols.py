"""A call tells a symbol that no shape of a kernel's parameters tells alone, as part of what stands there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, tirx
from tvm.ir import Var

from backends.cpu.codegen.generate import generate_module
from backends.cpu.schedule import schedule
from backends.tensorir.bare_symbols import bare_symbols, with_bare_symbols
from backends.tensorir.symbols import symbols_of
from fusion import context
from fusion.structural import find

Shapes = Callable[[Any, Any], list[Any]]


def kernel(shapes: Shapes, value: Callable[..., Any] = lambda x, b, n, i: x[i]) -> tirx.PrimFunc:
    """Return a kernel of vectors of such lengths, and one more like the first, of what `value` says."""
    b, n = tirx.Var("b", "int64"), tirx.Var("n", "int64")
    given = [te.placeholder((extent,), "float32", f"x{i}") for i, extent in enumerate(shapes(b, n))]
    made = te.compute(given[0].shape, lambda i: value(given[0], b, n, i), "made")
    return te.create_prim_func([*given, made])


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        (lambda b, n: [b * 4, b * 8], ["b_4", "b_4 * T.int64(2)"]),
        (lambda b, n: [b * 6, b * 4], ["b_4 // T.int64(4) * T.int64(6)", "b_4"]),
        (lambda b, n: [b * n, b * n * 3], ["b_n", "b_n * T.int64(3)"]),
        (lambda b, n: [b * n, n, b * 5], ["b_5 // T.int64(5) * n", "n", "b_5"]),
        (lambda b, n: [n * n], ["n_n"]),
        (lambda b, n: [b * n + 1, (b * n + 1) * 2], ["b_n", "b_n * T.int64(2)"]),
        (lambda b, n: [n + tirx.const(-1, "int64"), n * 2], ["n", "(n + T.int64(1)) * T.int64(2)"]),
    ],
)
def test_what_stands_in_a_shape_becomes_a_symbol(shapes: Shapes, expected: list[str]) -> None:
    found = with_bare_symbols(kernel(shapes))
    assert [str(param.ty.shape[0]) for param in found.params[:-1]] == expected


def test_kernels_whose_shapes_tell_all_stay_as_they_are() -> None:
    func = kernel(lambda b, n: [b * n, b, n])
    assert with_bare_symbols(func) is func


@pytest.mark.parametrize(
    ("shapes", "arrays"),
    [
        (lambda b, n: [b * 4], lambda b, n: [b * 4]),
        (lambda b, n: [b * n, n], lambda b, n: [b * n, n]),
        (lambda b, n: [b * 3 + 1, n], lambda b, n: [b * 3 + 1, n]),
    ],
)
def test_kernels_compute_with_the_symbols_that_are_told(shapes: Shapes, arrays: Callable[..., list[int]]) -> None:
    func = kernel(shapes, lambda x, b, n, i: x[i] + tirx.Cast("float32", b))
    ctx = context.resolve("llvm", threads=1)
    made = schedule(func, ctx.compiler.machine, 1).func.with_attr("global_symbol", "k")
    library = generate_module(tvm.IRModule({"k": made}), ctx.target)
    for b in (0, 1, 5):
        given = [np.arange(length, dtype="float32") for length in arrays(b, 7)]
        out = tvm.runtime.tensor(np.zeros_like(given[0]))
        library["k"](*map(tvm.runtime.tensor, given), out)
        np.testing.assert_array_equal(out.numpy(), given[0] + b)


def test_a_product_of_which_a_shape_has_a_multiple_is_told_by_that() -> None:
    """As the check of indices reads how many elements an image has, four of which each result is made of."""
    func = kernel(lambda b, n: [b * n * 4], lambda x, b, n, i: x[i] + tirx.Cast("float32", b * n))
    assert [var.name for var in symbols_of(with_bare_symbols(func))] == ["b_n_4"]
    assert not {var.name for var in find(with_bare_symbols(func).body, Var)}.intersection("bn")


def test_a_symbol_that_no_call_tells_is_left() -> None:
    func = with_bare_symbols(kernel(lambda b, n: [b * n], lambda x, b, n, i: x[i] + tirx.Cast("float32", n)))
    assert [var.name for var in symbols_of(func)] == ["b_n"]
    assert [var.name for var in bare_symbols(func)] == ["b_n"]
