"""Which differences are distances to the maximum of a row, which take it from a number that is rounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tvm import te, tirx

from backends.cpu.kernels.shared.stitching.softmax_weights import with_weights
from backends.tensorir.stages import read_stages

Expr = Any  # a TensorIR expression
Element = Callable[[Expr, Expr], Expr]
ROWS, COLUMNS = 3, 8


def _greatest(value: Element) -> te.Tensor:
    k = te.reduce_axis((0, COLUMNS), "k")
    return te.compute((ROWS,), lambda i: te.max(value(i, k), axis=k))


def _one_in_another(x: te.Tensor) -> Element:
    inner = _greatest(lambda i, j: x(i, j))

    def scaled(i: Expr, j: Expr) -> Expr:
        return (x(i, j) - inner(i)) * 1.7

    outer = _greatest(scaled)
    return lambda i, j: scaled(i, j) - outer(i)


def _where_finite(x: te.Tensor) -> Element:
    greatest = _greatest(lambda i, j: x(i, j))
    shift = te.compute((ROWS,), lambda i: tirx.Select(tirx.isfinite(greatest(i)), greatest(i), tirx.const(0.0)))
    return lambda i, j: x(i, j) - shift(i)


def _of_its_exponential(x: te.Tensor) -> Element:
    greatest = _greatest(lambda i, j: x(i, j))
    power = te.compute((ROWS,), lambda i: tirx.exp(greatest(i)))
    return lambda i, j: x(i, j) - power(i)


@pytest.mark.parametrize(
    ("build", "rounded"),
    # The inner distance is in the outer maximum too.
    [(_one_in_another, 3), (_where_finite, 1), (_of_its_exponential, 0)],
)
def test_distances_are_of_rounded_numbers(build: Callable[[te.Tensor], Element], rounded: int) -> None:
    x = te.placeholder((ROWS, COLUMNS), name="x")
    made = te.compute((ROWS, COLUMNS), build(x))
    stages = with_weights(read_stages(te.create_prim_func([x, made])))
    assert sum(str(stage.value).count("arithmetic.fence") for stage in stages) == rounded
