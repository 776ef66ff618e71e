"""Which kernels compute each image apart from the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from tvm import relax, te, tirx
from tvm.relax import op

from backends.tensorir.images import ImageAxis, read_images
from fusion.declined import Declined
from fusion.symbolic.fit import Fit
from tests.backends.cpu.kernels.memory_bound import Build, prim_func
from tests.symbolic.unified import unified

PROBES = ({"b": 29}, {"b": 31}, {"b": 47})


def opened(build: Build, *shapes: Sequence[int | str]) -> tirx.PrimFunc:
    """Return the kernel of `build` with `b` open in these shapes of its inputs."""

    def at(size: int) -> list[np.ndarray]:
        return [np.zeros([size if dim == "b" else dim for dim in shape], "float32") for shape in shapes]

    return unified([prim_func(build, at(probe["b"])) for probe in PROBES], Fit(PROBES))


def softmax(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return op.nn.softmax(x, axis=-1)


def rows_scaled(b: relax.BlockBuilder, x: relax.Var, scale: relax.Var) -> relax.Expr:
    rows = b.emit(op.multiply(op.reshape(x, (int(x.ty.shape[0]) * 6, 5)), scale))
    return op.reshape(rows, (-1, 2, 3, 5))


def in_front_of_one(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return op.expand_dims(op.nn.relu(x), 0)


@pytest.mark.parametrize(
    ("build", "shapes", "axes"),
    [
        (softmax, [("b", 3, 5)], {0: ImageAxis(0, 1), 1: ImageAxis(0, 1)}),
        (rows_scaled, [("b", 6, 5), (5,)], {0: ImageAxis(0, 1), 2: ImageAxis(0, 1)}),
        (in_front_of_one, [("b", 4)], {0: ImageAxis(0, 1), 1: ImageAxis(1, 1)}),
        (lambda b, x: op.reshape(x, (-1, 5)), [("b", 6, 5)], {0: ImageAxis(0, 1), 1: ImageAxis(0, 6)}),
    ],
)
def test_images_of_their_own(build: Build, shapes: list[tuple], axes: dict[int, ImageAxis]) -> None:
    images = read_images(opened(build, *shapes))
    assert images.count.name == "b"
    assert images.axes == axes


@pytest.mark.parametrize(
    ("build", "shapes", "reason"),
    [
        (lambda b, x: op.flip(x, 0), [("b", 4)], "reads or writes another image"),
        (lambda b, x: op.nn.softmax(x, axis=0), [("b", 4)], "sums over them"),
        (lambda b, x: op.sum(x, axis=0), [("b", 4)], "sums over them"),
        (lambda b, x: op.cumsum(x, 0), [("b",)], "the function is not made of blocks|more than one block"),
        (lambda b, x: op.permute_dims(x, [1, 0]), [("b", 4)], "not on the outermost axis"),
        (lambda b, x: op.nn.relu(x), [(4, "b")], "not on the outermost axis"),
        (lambda b, x, y: op.concat([x, y], 0), [("b", 4), (3, 4)], "no multiple"),
    ],
)
def test_what_mixes_images_is_declined(build: Build, shapes: list[tuple], reason: str) -> None:
    with pytest.raises(Declined, match=reason):
        read_images(opened(build, *shapes))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (lambda x, b, n, i: x[n, i] + tirx.Cast("float32", n), "which of them it is"),
        (lambda x, b, n, i: x[n, i] / tirx.Cast("float32", b), "how many there are"),
        (lambda x, b, n, i: tirx.if_then_else(n > 0, x[n, i], 0.0), "which of them it is"),
        (lambda x, b, n, i: x[tirx.const(0, "int64"), i] + x[n, i], "another image"),
        (lambda x, b, n, i: x[tirx.max(n - 1, 0), i], "another image"),
    ],
)
def test_what_depends_on_the_place_of_an_image_is_declined(value: Callable[..., Any], reason: str) -> None:
    count = tirx.Var("b", "int64")
    x = te.placeholder((count, tirx.const(4, "int64")), "float32", "x")
    made = te.compute(x.shape, lambda n, i: value(x, count, n, i), "made")
    with pytest.raises(Declined, match=reason):
        read_images(te.create_prim_func([x, made]))


def test_two_open_sizes_are_declined() -> None:
    rows, columns = tirx.Var("b", "int64"), tirx.Var("l", "int64")
    x = te.placeholder((rows, columns), "float32", "x")
    with pytest.raises(Declined, match="more than the number of images is open"):
        read_images(te.create_prim_func([x, te.compute(x.shape, lambda n, i: x[n, i] + 1.0, "made")]))
