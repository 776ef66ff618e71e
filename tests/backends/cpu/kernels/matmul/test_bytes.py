"""Products of bytes: exact, whatever the sizes, and what is behind them."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
import tvm
from tvm import relax
from tvm.relax import op

import fusion
from fusion import context
from partition.access import MATMUL
from tests.backends.cpu.kernels.anchored import groups, run
from tests.passes.test_multiply_bytes import drawn

MACHINE = context.resolve("llvm").compiler.machine
FORMS = [
    pytest.param(("uint8", "int8"), marks=pytest.mark.skipif(not MACHINE.dot_bytes, reason="the CPU has no VNNI")),
    pytest.param(("int16", "int8"), marks=pytest.mark.skipif(not MACHINE.dot_pairs, reason="the CPU has no AVX2")),
    pytest.param(("int16", "int16"), marks=pytest.mark.skipif(not MACHINE.dot_pairs, reason="the CPU has no AVX2")),
]
"""Of rows in memory, and of packed weights."""

in_all_forms = pytest.mark.parametrize("form", FORMS)
SHAPES = [(1, 1, 1), (3, 5, 7), (1, 384, 40), (13, 30, 33), (33, 64, 17), (70, 63, 40), (100, 95, 300), (64, 1602, 33)]


def drawn_operands(form: tuple[str, str], *shapes: tuple[int, int]) -> list[np.ndarray]:
    """Return rows and matrices: bytes, or int16 of nine bits where that is what weights are packed as."""
    first, *others = shapes
    if form[0] == "uint8":
        return [drawn("uint8", *first), *(drawn("int8", *shape) for shape in others)]
    wide = [2 * drawn("int8", *first).astype("int16") + 1]
    doubled = 2 if form[1] == "int16" else 1
    return wide + [doubled * drawn("int8", *shape).astype("int16") for shape in others]


@in_all_forms
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("rows", "depth", "channels"), SHAPES)
def test_products_are_exact(form: tuple[str, str], rows: int, depth: int, channels: int, threads: int) -> None:
    data, weights = drawn_operands(form, (rows, depth), (depth, channels))

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return op.matmul(x, relax.const(weights), out_dtype="int32")

    ran = run(build, [data], "llvm", threads)
    np.testing.assert_array_equal(ran.outputs[0], data.astype("int64") @ weights)
    assert ran.templates() == [MATMUL]


@in_all_forms
def test_several_products_of_the_same_rows_and_what_is_behind_them(form: tuple[str, str]) -> None:
    data, first, second = drawn_operands(form, (50, 72), (72, 40), (72, 90))
    scales = np.linspace(1e-4, 2e-4, 90, dtype="float32")

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        one, other = (b.emit(op.matmul(x, relax.const(each), out_dtype="int32")) for each in (first, second))
        less = b.emit(op.subtract(other, relax.const(np.int32(77))))
        scaled = b.emit(op.multiply(b.emit(op.astype(less, "float32")), relax.const(scales)))
        return relax.Tuple([one, b.emit(op.astype(b.emit(op.clip(b.emit(op.round(scaled)), -128, 127)), "int8"))])

    one, other = run(build, [data], "llvm", 2).outputs
    wide = data.astype("int64")
    np.testing.assert_array_equal(one, wide @ first)
    scaled = (wide @ second - 77).astype("float32") * scales
    np.testing.assert_array_equal(other, np.clip(np.rint(scaled), -128, 127).astype("int8"))


@pytest.mark.skipif(not MACHINE.dot_pairs, reason="the CPU has no AVX2")
def test_pairs_of_the_largest_bytes_do_not_saturate() -> None:
    data, weights = np.full((7, 64), 255, "int16"), np.full((64, 24), 127, "int16")

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return op.matmul(x, relax.const(weights), out_dtype="int32")

    np.testing.assert_array_equal(run(build, [data], "llvm", 1).outputs[0], 64 * 255 * 127)


_OPEN = """
<ir_version: 8, opset_import: ["": 17]>
integers (uint8[n, 70] x, uint8 zero) => (int32[n, 50] y) {
  y = MatMulInteger(x, w, zero)
}
"""


@pytest.mark.skipif(not (MACHINE.dot_bytes or MACHINE.dot_pairs), reason="the CPU has neither VNNI nor AVX2")
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_any_number_of_rows(dtype: str) -> None:
    weights = drawn(dtype, 70, 50)
    model = onnx.parser.parse_model(_OPEN)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    module = fusion.compile(model, threads=2, wait=True, strict=True)
    for rows in (1, 5, 33, 100):
        data = drawn("uint8", rows, 70)
        (found,) = module.run({"x": data, "zero": np.uint8(9)}).values()
        np.testing.assert_array_equal(found, (data.astype("int64") - 9) @ weights)


INSTRUCTIONS = [
    ("haswell", "int16", r"vpmaddwd\s.*%ymm"),
    ("skylake-avx512", "int16", r"vpmaddwd\s.*%zmm"),
    ("alderlake", "uint8", r"vpdpbusd\s.*%ymm"),
    ("icelake-server", "uint8", r"vpdpbusd\s.*%zmm"),
]


@pytest.mark.parametrize(("cpu", "dtype", "instruction"), INSTRUCTIONS)
def test_each_cpu_has_the_instruction_of_its_vectors(cpu: str, dtype: str, instruction: str) -> None:
    """Of code that need not run here."""
    compiler = context.resolve(f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu}", threads=1).compiler
    left, right = compiler.byte_products[0]
    assert left == dtype

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return op.matmul(x, relax.const(drawn("int8", 64, 48).astype(right)), out_dtype="int32")

    (kernel,) = groups(build, [drawn("int8", 20, 64).astype(left)], lanes=compiler.machine.vector_lanes)
    scheduled = compiler.schedule(kernel).func.with_attr("global_symbol", "kernel")
    code = compiler.generate_module(tvm.IRModule({"kernel": scheduled})).inspect_source("asm")
    assert re.search(instruction, code)
    assert "vpmaddubsw" not in code
