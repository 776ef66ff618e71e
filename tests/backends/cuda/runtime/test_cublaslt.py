"""cuBLASLt in the place of products: what it is given, and what it makes of that on the fake driver."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import ml_dtypes  # noqa: F401, so that NumPy knows bfloat16
import numpy as np
import onnx
import pytest
from onnx import helper
from tvm import relax
from tvm.relax import op

import fusion
from backends.cuda.libraries import package
from backends.cuda.libraries.call import read_call
from backends.cuda.libraries.cublaslt import api
from backends.cuda.libraries.cublaslt.loaded import LoadedProduct
from backends.cuda.libraries.cublaslt.product import LibraryProduct, OperandLayout
from backends.cuda.libraries.cublaslt.read import read_product_call
from backends.cuda.packages import find_in_package
from backends.cuda.runtime.device import open_device
from backends.cuda.runtime.found_devices import find_devices
from fusion.context import resolve
from fusion.declined import Declined
from fusion.errors import ExecutionError, FusionError, InternalError, LimitError, NotInstalledError, TargetError
from tests.backends.cpu.kernels.memory_bound import prim_func
from tests.backends.cuda.fake.fake_cublaslt import FakeCublasLt, fake_cublaslt
from tests.backends.cuda.fake.fake_cuda import FakeCuda, FakeTensor
from tests.backends.cuda.test_models import model

NAMED = {"backends": ["cublaslt", "cpu"], "cache": False}
HEADER = find_in_package("cublas", "include/cublasLt.h")


@pytest.fixture
def cublaslt(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> FakeCublasLt:
    """Have the fake library in the place of the package's."""
    path = str(fake_cublaslt())
    monkeypatch.setattr(api, "find_in_package", lambda name, pattern: path)
    monkeypatch.setattr(package, "version", lambda name: "12.9")
    return FakeCublasLt()


def read(build: Callable[..., relax.Expr], *shapes: tuple[int, ...], dtype: str = "float32") -> LibraryProduct:
    """Return the call that computes a graph of inputs of these shapes."""
    func = prim_func(build, [np.zeros(shape, dtype) for shape in shapes])
    return read_product_call(func, tfloat32=False).work


def turned(x: relax.Expr, *axes: int) -> relax.Expr:
    return op.permute_dims(x, axes)


LINES, COLUMNS = OperandLayout(True, 8, 0), OperandLayout(False, 16, 0)
"""The left operand by depth, of 8, and the right one by columns, of 16."""


@pytest.mark.parametrize(
    ("build", "shapes", "left", "right"),
    [
        (lambda b, x, y: op.matmul(x, y), [(4, 8), (8, 16)], LINES, COLUMNS),
        (lambda b, x, y: op.matmul(x, turned(y, 1, 0)), [(4, 8), (16, 8)], LINES, LINES),
        (lambda b, x, y: op.matmul(turned(x, 1, 0), y), [(8, 4), (8, 16)], OperandLayout(False, 4, 0), COLUMNS),
        (lambda b, x, y: op.matmul(x, y), [(3, 2, 8), (8, 16)], LINES, COLUMNS),
        (
            lambda b, x, y: op.matmul(x, y), [(3, 4, 8), (3, 8, 16)],
            OperandLayout(True, 8, 32), OperandLayout(False, 16, 128),
        ),
        (lambda b, x, y: op.matmul(x, y), [(1, 8), (8, 16)], LINES, COLUMNS),
    ],
)  # fmt: skip
def test_operands_lie_as_they_are(
    build: Callable[..., relax.Expr], shapes: list[tuple[int, ...]], left: OperandLayout, right: OperandLayout
) -> None:
    product = read(build, *shapes)
    assert (product.left, product.right) == (left, right)
    assert (product.columns, product.depth, product.has_bias, product.has_relu) == (16, 8, False, False)


def test_a_bias_and_a_maximum_are_epilogues() -> None:
    product = read(lambda b, x, y, z: op.nn.relu(op.add(op.matmul(x, y), z)), (4, 8), (8, 16), (16,))
    assert (product.has_bias, product.has_relu) == (True, True)
    narrow = read(lambda b, x, y: op.nn.relu(op.matmul(x, y)), (4, 8), (8, 16), dtype="float16")
    assert (narrow.dtype, narrow.result_dtype, narrow.multiplied) == ("float16", "float16", "float16")
    assert (narrow.has_bias, narrow.has_relu) == (False, True)


def test_a_residual_is_added_with_a_bias_or_alone() -> None:
    alone = read(lambda b, x, y, z: op.add(z, op.matmul(x, y)), (4, 8), (8, 16), (4, 16))
    assert (alone.has_bias, alone.has_residual, str(alone)) == (False, True, "4 x 16 x 8 float32 + residual")
    arrays = [np.zeros(shape, np.float32) for shape in ((4, 16), (4, 8), (8, 16), (16,))]
    func = prim_func(lambda b, r, x, y, p: op.nn.relu(op.add(r, op.add(op.matmul(x, y), p))), arrays)
    call = read_product_call(func, tfloat32=False)
    assert call.arguments == (1, 2, 4, 3, 0)
    assert str(call.work) == "4 x 16 x 8 float32 + bias + residual, relu"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_gelu_by_a_hyperbolic_tangent_is_an_epilogue_of_narrow_numbers(dtype: str) -> None:
    def build(b: relax.BlockBuilder, x: relax.Expr, y: relax.Expr, z: relax.Expr) -> relax.Expr:
        return op.nn.gelu_tanh(op.add(op.matmul(x, y), z))

    product = read(build, (4, 8), (8, 16), (16,), dtype=dtype)
    assert (product.has_bias, product.has_relu, product.has_gelu) == (True, False, True)
    assert str(product) == f"4 x 16 x 8 {dtype} + bias, gelu"
    alone = read(lambda b, x, y: op.nn.gelu_tanh(op.matmul(x, y)), (4, 8), (8, 16), dtype=dtype)
    assert (alone.has_bias, alone.has_gelu) == (False, True)


def test_calls_are_read_from_what_files_keep() -> None:
    call = read_product_call(prim_func(lambda b, x, y: op.matmul(x, y), [*np.zeros((2, 8, 8), "f4")]), tfloat32=True)
    fields = json.loads(json.dumps(call.fields()))
    assert read_call(fields) == call
    before = {"product": {**fields["work"]}, "arguments": fields["arguments"]}
    del before["product"]["has_residual"], before["product"]["has_gelu"]
    assert read_call(before) == call
    with pytest.raises(ValueError, match="not known here"):
        read_call(fields | {"library": "another"})
    with pytest.raises(ValueError, match="does not take both"):
        read_call(fields | {"work": fields["work"] | {"has_relu": True, "has_gelu": True}})
    with pytest.raises(ValueError, match="not 2 tensors"):
        read_call(fields | {"arguments": [0, 1]})


@pytest.mark.parametrize(
    ("build", "shapes", "why"),
    [
        (lambda b, x, y, z: op.add(op.matmul(x, y), turned(z, 1, 0)), [(4, 8), (8, 16), (16, 4)], "another tensor"),
        (lambda b, x, y, z: op.add(op.matmul(x, y), z), [(16, 8), (8, 16), (16, 1)], "another tensor than a bias"),
        (lambda b, x, y: op.sigmoid(op.matmul(x, y)), [(4, 8), (8, 16)], "no bias, residual, maximum"),
        (
            lambda b, x, y, z: op.add(op.nn.relu(op.matmul(x, y)), z),
            [(4, 8), (8, 16), (16,)],
            "no bias, residual, maximum",
        ),
        (lambda b, x, y: op.nn.gelu(op.matmul(x, y)), [(4, 8), (8, 16)], "GELU by a hyperbolic tangent"),
        (lambda b, x, y: op.nn.gelu_tanh(op.matmul(x, y)), [(4, 8), (8, 16)], "not documented"),
        (lambda b, x, y: op.clip(op.matmul(x, y), 0, 6), [(4, 8), (8, 16)], "no bias, residual, maximum"),
        (lambda b, x, y: turned(op.matmul(x, y), 1, 0), [(4, 8), (8, 16)], "does not lie as its sums"),
        (lambda b, x: op.nn.softmax(x), [(4, 8)], "not one reduction"),
    ],
)
def test_what_is_behind_may_be_too_much(
    build: Callable[..., relax.Expr], shapes: list[tuple[int, ...]], why: str
) -> None:
    with pytest.raises(Declined, match=why):
        read(build, *shapes)


def network() -> onnx.ModelProto:
    """Three products: with a bias and a maximum, of two activations one of which lies turned, and with a residual."""
    random = np.random.default_rng(22)
    held = {
        name: random.standard_normal(shape).astype(np.float32)
        for name, shape in {"u": (32, 48), "p": (48,), "d": (9, 32), "r": (2, 9, 32)}.items()
    }
    node = helper.make_node
    nodes = [
        node("MatMul", ["x", "u"], ["a"]), node("Add", ["a", "p"], ["b"]), node("Relu", ["b"], ["c"]),
        node("Transpose", ["c"], ["t"], perm=[0, 2, 1]), node("MatMul", ["c", "t"], ["s"]),
        node("MatMul", ["s", "d"], ["e"]), node("Add", ["e", "r"], ["y"]),
    ]  # fmt: skip
    return model(nodes, (2, 9, 32), (2, 9, 32), **held)


def in_float64(x: np.ndarray) -> np.ndarray:
    held = {each.name: onnx.numpy_helper.to_array(each).astype(np.float64) for each in network().graph.initializer}
    c = np.maximum(x.astype(np.float64) @ held["u"] + held["p"], 0)
    return c @ c.transpose(0, 2, 1) @ held["d"] + held["r"]


def test_a_model_runs_its_products_on_the_library(tmp_path: Path, cublaslt: FakeCublasLt, fake: FakeCuda) -> None:
    """Launched one by one, as graphs, on arrays of the host and of the device, and from a file."""
    fusion.compile(network(), "cuda -arch=sm_80", **NAMED).save(tmp_path / "m.fusion")
    module = fusion.load(tmp_path / "m.fusion")
    assert [info.template for info in module.specializations[0].kernels.values()].count("cublaslt") == 3
    assert "cublaslt" in module.explain()
    x = np.random.default_rng(3).standard_normal((2, 9, 32)).astype(np.float32)
    for scale in (1, -2, 3):
        np.testing.assert_allclose(module(scale * x)[0], in_float64(scale * x), rtol=2e-5, atol=1e-3)
        given = FakeTensor(scale * x)
        np.testing.assert_allclose(module(given)[0].numpy(), in_float64(scale * x), rtol=2e-5, atol=1e-3)
    assert fake.calls("cuGraphAddChildGraphNode") >= 2
    assert fake.message == ""
    first, second, third = cublaslt.products[:3]
    assert first == "compute 68, A N 48x32/48 type 0, B N 32x18/32, D 48x18 type 0, batches 1, epilogue 6"
    assert second == "compute 68, A N 9x48/9 type 0, B N 48x9/48, D 9x9 type 0, batches 2, epilogue 1"
    assert third == "compute 68, A N 32x9/32 type 0, B N 9x18/9, D 32x18 type 0, batches 1, epilogue 1, beta 1"


@pytest.mark.parametrize("has_gelu", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize(("left_by_depth", "right_by_depth"), [(True, False), (False, True)])
def test_layouts_and_numbers_multiply(
    dtype: str, left_by_depth: bool, right_by_depth: bool, has_gelu: bool, cublaslt: FakeCublasLt
) -> None:
    """A batch of products whose right operand is the same in each, with a bias and a residual."""
    draw = np.random.default_rng(5)
    shapes = (3, 4, 8), (8, 6), (6,), (3, 4, 6)
    left, right, bias, residual = (draw.integers(-4, 4, shape).astype(dtype) for shape in shapes)
    result, workspace = np.full((3, 4, 6), np.nan, dtype), np.zeros(4096, np.uint8)
    product = LibraryProduct(
        3, 4, 6, 8,
        OperandLayout(True, 8, 32) if left_by_depth else OperandLayout(False, 4, 32),
        OperandLayout(True, 8, 0) if right_by_depth else OperandLayout(False, 6, 0),
        dtype, dtype, tfloat32=dtype == "float32", has_bias=True, has_relu=False, has_residual=True, has_gelu=has_gelu,
    )  # fmt: skip
    device = open_device(find_devices()[0])
    lies = (left if left_by_depth else left.transpose(0, 2, 1)), (right.T if right_by_depth else right)
    tensors = [FakeTensor(np.ascontiguousarray(each)) for each in (*lies, result, bias, residual, workspace)]
    loaded, copy = LoadedProduct(device, product), np.empty((3, 4, 6), dtype)
    with device.current():
        for each in tensors:
            device.call("cuStreamSynchronize", each.stream)
        loaded.run([each.address for each in tensors[:5]], tensors[5].address, 1)
        device.call("cuMemcpyDtoH_v2", copy.ctypes.data, tensors[2].address, copy.nbytes)
    wide = left.astype(np.float32) @ right.astype(np.float32) + bias.astype(np.float32) + residual.astype(np.float32)
    if has_gelu:
        wide *= 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3)))
        precision = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 1e-6}[dtype]
        np.testing.assert_allclose(copy.astype(np.float64), wide, rtol=precision, atol=1e-6)
    else:
        np.testing.assert_array_equal(copy, wide.astype(dtype))
    number = {"float16": 2, "bfloat16": 14, "float32": 0}[dtype]
    compute = 77 if dtype == "float32" else 68
    (told,) = cublaslt.products
    assert told.startswith(f"compute {compute}, ")
    assert told.endswith(f"D 6x4 type {number}, batches 3, epilogue {36 if has_gelu else 4}, beta 1")


@pytest.mark.parametrize(
    ("name", "status", "error", "hint"),
    [
        ("cublasLtCreate", 1, ExecutionError, "cublaslt"),
        ("cublasLtCreate", 3, LimitError, "smaller batches"),
        ("cublasLtMatmulAlgoGetHeuristic", 15, TargetError, "without"),
        ("cublasLtMatmulAlgoGetHeuristic", 8, TargetError, "without"),
        ("cublasLtMatmul", 7, InternalError, "report it"),
        ("cublasLtMatmul", 13, ExecutionError, "another process"),
    ],
)
def test_what_it_refuses_is_told(
    name: str, status: int, error: type[FusionError], hint: str, cublaslt: FakeCublasLt, fake: FakeCuda
) -> None:
    device = open_device(find_devices()[0])
    product = LibraryProduct(1, 4, 16, 8, LINES, COLUMNS, "float32", "float32", False, False, False)
    cublaslt.fail(name, status)
    with pytest.raises(error) as told, device.current():
        LoadedProduct(device, product).run([0, 0, 0], 0, 1)
    assert f"{name} returned {status}" in told.value.why
    assert hint in told.value.hint


def test_no_algorithm_is_told(cublaslt: FakeCublasLt) -> None:
    cublaslt.propose(0)
    product = LibraryProduct(1, 4, 16, 8, LINES, COLUMNS, "float16", "float16", False, True, False)
    with pytest.raises(TargetError, match="no algorithm") as error:
        LoadedProduct(open_device(find_devices()[0]), product)
    assert error.value.where == "4 x 16 x 8 float16 + bias"


def test_without_the_package_one_line_says_so(
    tmp_path: Path, cublaslt: FakeCublasLt, monkeypatch: pytest.MonkeyPatch
) -> None:
    fusion.compile(network(), "cuda -arch=sm_80", **NAMED).save(tmp_path / "m.fusion")
    monkeypatch.setattr(api, "find_in_package", lambda name, pattern: None)
    api.opened.clear()
    with pytest.raises(NotInstalledError, match="needs cuBLASLt") as error:
        fusion.load(tmp_path / "m.fusion")
    assert "pip install nvidia-cublas-cu12" in error.value.hint
    monkeypatch.undo()
    if find_in_package("cublas", "lib/libcublasLt.so.*") is None:
        (line,) = resolve("cuda -arch=sm_80", backends=["cublaslt", "cpu"]).skipped
        assert line == "the backend 'cublaslt' is not installed and runs nothing; pip install nvidia-cublas-cu12"


def test_libraries_run_what_their_machines_do(cublaslt: FakeCublasLt) -> None:
    (line,) = resolve("llvm", backends=["cublaslt", "cpu"]).skipped
    assert line == "cublaslt runs nothing: it is for targets of the kind cuda"
    (line,) = resolve("cuda -arch=sm_80", backends=["onnxruntime", "cpu"]).skipped
    assert line == "onnxruntime runs nothing: its code is for CPUs, and the target is sm_80 (A100 SXM 80 GB)"
    (line,) = resolve("cuda -arch=sm_80", backends=["cpu", "cublaslt"]).skipped
    assert "behind cpu, and not measured" in line


@pytest.mark.skipif(HEADER is None, reason="there is no cublasLt.h of the package")
def test_the_numbers_are_those_of_the_header() -> None:
    text = Path(str(HEADER)).read_text() + Path(str(HEADER)).with_name("cublas_api.h").read_text()
    known = {name: int(number) for name, number in re.findall(r"(CUBLAS\w+) = (\d+)\b", text)}
    assert known["CUBLASLT_MATMUL_DESC_TRANSA"] == api.TRANSA
    assert known["CUBLASLT_MATMUL_DESC_TRANSB"] == api.TRANSB
    assert known["CUBLASLT_MATMUL_DESC_EPILOGUE"] == api.EPILOGUE
    assert known["CUBLASLT_MATMUL_DESC_BIAS_POINTER"] == api.BIAS_POINTER
    assert known["CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT"] == api.BATCH_COUNT
    assert known["CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET"] == api.BATCH_STEP
    assert known["CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES"] == api.MOST_WORKSPACE
    assert tuple(known[f"CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_{each}_BYTES"] for each in "ABCD") == api.ALIGNMENTS
    assert (known["CUBLAS_COMPUTE_32F"], known["CUBLAS_COMPUTE_32F_FAST_TF32"]) == (
        api.COMPUTE_32F, api.COMPUTE_32F_FAST_TF32,
    )  # fmt: skip
    epilogues = (api.EPILOGUE_NONE, api.EPILOGUE_RELU, api.EPILOGUE_GELU, api.EPILOGUE_BIAS)
    assert tuple(known[f"CUBLASLT_EPILOGUE_{each}"] for each in ("DEFAULT", "RELU", "GELU", "BIAS")) == epilogues
