"""What is read from each form of PrimFunc."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tvm import relax, tirx
from tvm.relax import op

from backends.cpu.lowerings import lowerings
from backends.tensorir.legalize import LEGALIZATIONS
from backends.tensorir.lower_anchors import LowerAnchors
from partition.access import AccessSummary, MappingKind, read_access
from tests.passes.modules import module, normal, weight

X = normal(3, 8, 16)
Build = Callable[..., relax.Expr]


def access_of(build: Build, *arrays: np.ndarray) -> AccessSummary:
    """Return the access of the only kernel that `build` becomes."""
    mod = LowerAnchors(lowerings(16))(module(build, arrays or [X]))
    mod = relax.transform.LegalizeOps(LEGALIZATIONS)(mod)
    (func,) = [func for func in mod.functions.values() if isinstance(func, tirx.PrimFunc)]
    return read_access(func)


KINDS: dict[str, tuple[Build, MappingKind]] = {
    "unary": (lambda b, x: op.exp(x), MappingKind.ELEMENTWISE),
    "broadcast row": (lambda b, x: op.add(x, weight(16)), MappingKind.ELEMENTWISE),
    "broadcast column": (lambda b, x: op.multiply(x, weight(8, 1)), MappingKind.ELEMENTWISE),
    "scalar": (lambda b, x: op.add(x, relax.const(np.float32(1))), MappingKind.ELEMENTWISE),
    "clip": (lambda b, x: op.clip(x, 0, 1), MappingKind.ELEMENTWISE),
    "cast": (lambda b, x: op.astype(x, "float64"), MappingKind.ELEMENTWISE),
    "reshape": (lambda b, x: op.reshape(x, (24, 16)), MappingKind.REORDER),
    "transpose": (lambda b, x: op.permute_dims(x, [0, 2, 1]), MappingKind.REORDER),
    "take": (lambda b, x: op.take(x, relax.const(np.array([0, 2])), axis=0), MappingKind.GATHER),
    "softmax": (lambda b, x: op.nn.softmax(x), MappingKind.ROWS),
    "softmax of columns": (lambda b, x: op.nn.softmax(x, 1), MappingKind.REDUCTION),
    "mean of rows": (lambda b, x: op.mean(x, [-1]), MappingKind.ROWS),
    "sum of rows, kept": (lambda b, x: op.sum(x, [2], keepdims=True), MappingKind.ROWS),
    "sum of columns": (lambda b, x: op.sum(x, [0]), MappingKind.REDUCTION),
    "sum of the middle": (lambda b, x: op.sum(x, [1]), MappingKind.REDUCTION),
    "layer norm": (lambda b, x: op.nn.layer_norm(x, weight(16), weight(16), [-1]), MappingKind.ROWS),
    "pad": (lambda b, x: op.nn.pad(x, [0, 0, 1, 1, 0, 0]), MappingKind.OPAQUE),
    "concat": (lambda b, x: op.concat([x, x], 1), MappingKind.OPAQUE),
    "slice": (lambda b, x: op.strided_slice(x, [1], [2], [4]), MappingKind.OPAQUE),
    "leading part": (lambda b, x: op.strided_slice(x, [1], [0], [4]), MappingKind.ELEMENTWISE),
    "split": (lambda b, x: op.split(x, 2, 1), MappingKind.OPAQUE),
    "matmul": (lambda b, x: op.matmul(x, weight(16, 4)), MappingKind.ANCHOR),
    "batch matmul": (lambda b, x: op.matmul(x, weight(3, 16, 4)), MappingKind.ANCHOR),
}


@pytest.mark.parametrize("name", KINDS)
def test_kinds(name: str) -> None:
    build, kind = KINDS[name]
    assert access_of(build).kind is kind


@pytest.mark.parametrize("groups", [1, 8])
def test_convolutions_are_anchors(groups: int) -> None:
    conv = lambda b, x: op.nn.conv2d(x, weight(8, 8 // groups, 3, 3), groups=groups, data_layout="NHWC")  # noqa: E731
    access = access_of(conv, normal(1, 9, 9, 8))
    assert (access.kind, access.shape, access.elements) == (MappingKind.ANCHOR, (1, 7, 7, 8), 392)


@pytest.mark.parametrize(
    ("order", "keeps_last", "moves"),
    [((0, 1, 2), True, False), ((1, 0, 2), True, True), ((0, 2, 1), False, True), ((2, 1, 0), False, True)],
)
def test_transposes_tell_what_they_move(order: tuple[int, ...], keeps_last: bool, moves: bool) -> None:
    access = access_of(lambda b, x: op.permute_dims(x, order))
    if order == (0, 1, 2):  # a copy is elementwise
        assert access.kind is MappingKind.ELEMENTWISE
    else:
        assert (access.kind, access.keeps_last, access.moves) == (MappingKind.REORDER, keeps_last, moves)


@pytest.mark.parametrize("shape", [(24, 16), (3, 2, 4, 16), (384,), (3, 128)])
def test_reshapes_move_nothing(shape: tuple[int, ...]) -> None:
    access = access_of(lambda b, x: op.reshape(x, shape))
    assert (access.kind, access.keeps_last, access.moves) == (MappingKind.REORDER, True, False)


def test_a_transpose_of_axes_of_size_one_moves_nothing() -> None:
    access = access_of(lambda b, x: op.permute_dims(x, [1, 2, 0]), normal(1, 8, 16))
    assert not access.moves


def test_rows_are_the_axes_that_are_kept() -> None:
    assert access_of(lambda b, x: op.nn.softmax(x)).rows == (3, 8)
    assert access_of(lambda b, x: op.sum(x, [1, 2])).rows == (3,)
    assert access_of(lambda b, x: op.sum(x)).rows == ()


def test_a_function_of_no_blocks_is_opaque() -> None:
    assert read_access(tirx.PrimFunc([], tirx.Evaluate(0))).kind is MappingKind.OPAQUE
