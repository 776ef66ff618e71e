"""Which operators take bfloat16, and what becomes of their operands."""

from __future__ import annotations

import pytest
import tvm
import tvm_ffi
from tvm import relax

from backends.cpu.machine import Machine
from backends.cpu.rounding_policy import CpuRounding
from fusion.passes.lower_precision import LowerPrecision
from tests.passes.modules import Build, calls, canonical, module, names, normal, weight

MACHINE = Machine(16, 32, 32 << 10, 1 << 20, 32 << 20, dot_bfloat16=True)


def lowered(build: Build, *shapes: tuple[int, ...]) -> tvm.IRModule:
    """Return what the pass makes of a module; asserts that twice is the same as once and that it is well-formed."""
    rewrite = LowerPrecision(CpuRounding(MACHINE, threads=2))
    after = canonical(rewrite(module(build, [normal(*shape) for shape in shapes])))
    relax.analysis.well_formed(after)
    assert tvm_ffi.structural_equal(canonical(rewrite(after)), after)
    return after


def dtypes(mod: tvm.IRModule, operator: str) -> list[str]:
    """Return the dtypes of the operands of each call of `operator`, and of its result."""
    found = [call for name, call in calls(mod) if name == operator]
    return [" ".join(str(part.ty.dtype.dtype) for part in (*call.args[:2], call)) for call in found]


ROUNDED, WIDE = "bfloat16 bfloat16 float32", "float32 float32 float32"


def test_readers_share_one_rounding() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        first, second = (b.emit(relax.op.matmul(x, weight(32, 48, seed=seed))) for seed in (0, 1))
        return relax.op.add(first, second)

    mod = lowered(build, (4, 32))
    assert names(mod) == ["astype", "matmul", "matmul", "add"]
    assert dtypes(mod, "matmul") == [ROUNDED] * 2


def test_moved_operands_are_rounded_before_they_move() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var, y: relax.Var) -> relax.Expr:
        return relax.op.matmul(x, b.emit(relax.op.permute_dims(y, [0, 2, 1])))

    mod = lowered(build, (2, 5, 8), (2, 16, 8))
    assert names(mod) == ["astype", "astype", "permute_dims", "matmul"]
    assert dtypes(mod, "matmul") == [ROUNDED]


@pytest.mark.parametrize(("columns", "expected"), [(16, ROUNDED), (17, WIDE)])
def test_products_of_batches_need_whole_vectors(columns: int, expected: str) -> None:
    mod = lowered(lambda b, x, y: relax.op.matmul(x, y), (2, 5, 8), (2, 8, columns))
    assert dtypes(mod, "matmul") == [expected]


@pytest.mark.parametrize(
    ("channels", "kernel", "strides", "groups", "expected"),
    [
        ((64, 256), 1, 1, 1, ROUNDED),
        ((64, 64), 3, 2, 1, ROUNDED),
        ((64, 64), 3, 1, 4, ROUNDED),
        ((64, 64), 3, 1, 1, WIDE),  # Winograd's F(4x4) has four times fewer products
        ((64, 64), 3, 1, 64, WIDE),  # depthwise
    ],
)
def test_convolutions(channels: tuple[int, int], kernel: int, strides: int, groups: int, expected: str) -> None:
    depth, out = channels

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        kernels = weight(out, depth // groups, kernel, kernel)
        return relax.op.nn.conv2d(x, kernels, strides, kernel // 2, groups=groups, data_layout="NHWC")

    assert dtypes(lowered(build, (1, 56, 56, depth)), "nn.conv2d") == [expected]


@pytest.mark.parametrize(("rows", "sums"), [(5000, []), (50, ["add"])])
def test_a_large_value_is_stored_once(rows: int, sums: list[str]) -> None:
    """The sum over 5000 rows, 1.3 MB, reads the rounded copy in a function of its own."""

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        value = b.emit(relax.op.nn.relu(x))
        return relax.op.add(b.emit(relax.op.matmul(value, weight(64, 64))), value)

    mod = lowered(build, (rows, 64))
    assert [name for name in names(mod) if name == "add"] == sums
    assert len([f for f in mod.functions.values() if isinstance(f, tvm.tirx.PrimFunc)]) == 1 - len(sums)
