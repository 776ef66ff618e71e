"""Models for CUDA devices: the same passes as for CPUs, then kernels, a plan of memory, and a file."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace

import numpy as np
import onnx
import pytest
import torch
import tvm
from onnx import helper, numpy_helper
from torch.nn import functional as F

import fusion
from backends.cuda.codegen import nvrtc
from fusion import context
from fusion.errors import NotInstalledError, SavedFileError, ShapeError, TargetError, UnsupportedOperatorError
from fusion.frontends import import_model
from fusion.pipeline import lower
from tests.backends.cuda.emulate_zoo import Sectors
from tests.backends.cuda.emulator.emulate import WHY_NOT, EmulatedError
from tests.backends.cuda.planned import run_planned
from tests.backends.cuda.test_torch_attention import Computed
from tests.frontends.models import branch, choose, make, node
from tests.module import small_models

TARGET = "cuda -arch=sm_80"
_WEIGHTS = {"g": (32,), "e": (32,), "u": (32, 72), "p": (72,), "d": (72, 32), "q": (32,), "h": (32, 10), "r": (10,)}


def model(
    nodes: list[onnx.NodeProto],
    shape: tuple[int, ...],
    result: tuple[int, ...],
    dtype: str = "float32",
    more: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    **weights: np.ndarray,
) -> onnx.ModelProto:
    """Return a model from `x` to `y`, and to `more` outputs."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    given = [helper.make_tensor_value_info("x", kind, shape)]
    results = {"y": result, **more}
    made = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, each) for name, each in results.items()]
    held = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "model", given, made, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])


def weights() -> dict[str, np.ndarray]:
    random = np.random.default_rng(2230)
    return {name: (random.standard_normal(shape) / 4).astype(np.float32) for name, shape in _WEIGHTS.items()}


def feed_forward() -> onnx.ModelProto:
    """A transformer's feed-forward block with a softmax head: rows, products with what is behind them, rows."""
    node = helper.make_node
    nodes = [
        node("LayerNormalization", ["x", "g", "e"], ["n"]), node("MatMul", ["n", "u"], ["a"]),
        node("Add", ["a", "p"], ["b"]), node("Sigmoid", ["b"], ["s"]), node("Mul", ["b", "s"], ["c"]),
        node("MatMul", ["c", "d"], ["i"]), node("Add", ["i", "q"], ["j"]), node("Add", ["j", "x"], ["k"]),
        node("MatMul", ["k", "h"], ["l"]), node("Add", ["l", "r"], ["m"]), node("Softmax", ["m"], ["y"], axis=-1),
    ]  # fmt: skip
    return model(nodes, (2, 9, 32), (2, 9, 10), **weights())


def feed_forward_in_float64(x: np.ndarray) -> np.ndarray:
    x, held = x.astype(np.float64), {name: each.astype(np.float64) for name, each in weights().items()}
    off = x - x.mean(-1, keepdims=True)
    n = off / np.sqrt((off * off).mean(-1, keepdims=True) + 1e-5) * held["g"] + held["e"]
    b = n @ held["u"] + held["p"]
    k = (b / (1 + np.exp(-b))) @ held["d"] + held["q"] + x
    powers = np.exp(k @ held["h"] + held["r"])
    return powers / powers.sum(-1, keepdims=True)


@pytest.mark.usefixtures("assembler")
@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_a_feed_forward_block_is_what_float64_says(arch: str) -> None:
    module = fusion.compile(feed_forward(), target=f"cuda -arch={arch}")
    x = np.random.default_rng(2231).standard_normal((2, 9, 32)).astype(np.float32)
    (y,) = run_planned(module, x)
    np.testing.assert_allclose(y, feed_forward_in_float64(x), rtol=2e-5, atol=1e-7)
    assert arch in module.explain().splitlines()[0]
    (form,) = module.specializations
    taken = sorted(info.template for info in form.kernels.values())
    assert taken == ["product", "product-activation-product", "rows", "rows"]


@pytest.mark.parametrize(
    ("rows", "precision", "together"), [(3136, "tf32", True), (3136, "fp32", False), (49, "tf32", False)]
)
def test_an_mlp_is_one_kernel_where_that_moves_less_than_it_costs(rows: int, precision: str, together: bool) -> None:
    """Of many rows what lies between 96, 384 and 96 numbers is the most that is moved; of few the grid is small."""
    node, shape = helper.make_node, (1, rows, 96)
    held = {name: np.ones(each, np.float32) for name, each in {"u": (96, 384), "p": (384,), "d": (384, 96)}.items()}
    nodes = [
        node("MatMul", ["x", "u"], ["a"]), node("Add", ["a", "p"], ["b"]), node("Gelu", ["b"], ["c"]),
        node("MatMul", ["c", "d"], ["e"]), node("Add", ["e", "x"], ["y"]),
    ]  # fmt: skip
    ctx = replace(context.resolve(TARGET, cache=False, precision=precision), strict=True)
    lowered = lower(import_model(model(nodes, shape, shape, **held), {}, strict=True), ctx)
    names = [info.template for info in lowered.kernels.values()]
    assert names == (["product-activation-product"] if together else ["product", "product"])


def convolved(x: np.ndarray, w: np.ndarray, groups: int = 1, stride: int = 1) -> np.ndarray:
    """Return a convolution with padding of one on all sides."""
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), w.shape[2:], (2, 3))
    windows = windows[:, :, ::stride, ::stride]
    parts = zip(np.split(windows, groups, 1), np.split(w.astype(np.float64), groups), strict=True)
    return np.concatenate([np.einsum("nihwyx,oiyx->nohw", part, own) for part, own in parts], 1)


@pytest.mark.usefixtures("assembler")
@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
def test_convolutions_pools_and_a_head_are_what_float64_says() -> None:
    """A convolution of three channels on an odd image, one by channels, one in groups, a dense one, two pools."""
    random = np.random.default_rng(2234)
    shapes = {"a": (12, 3, 3, 3), "b": (12, 1, 3, 3), "c": (12, 4, 3, 3), "d": (10, 12, 3, 3)}
    held = {name: (random.standard_normal(shape) / 3).astype(np.float32) for name, shape in shapes.items()}
    node, pads = helper.make_node, {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    nodes = [
        node("Conv", ["x", "a"], ["t0"], **pads, strides=[2, 2]), node("Relu", ["t0"], ["t1"]),
        node("Conv", ["t1", "b"], ["t2"], **pads, group=12), node("Conv", ["t2", "c"], ["t3"], **pads, group=3),
        node("Relu", ["t3"], ["t4"]), node("MaxPool", ["t4"], ["t5"], **pads),
        node("Conv", ["t5", "d"], ["t6"], **pads), node("GlobalAveragePool", ["t6"], ["t7"]),
        node("Flatten", ["t7"], ["y"]),
    ]  # fmt: skip
    module = fusion.compile(model(nodes, (2, 3, 13, 11), (2, 10), **held), target=TARGET)
    x = random.standard_normal((2, 3, 13, 11)).astype(np.float32)
    wide = np.maximum(convolved(x.astype(np.float64), held["a"], stride=2), 0)
    wide = np.maximum(convolved(convolved(wide, held["b"], groups=12), held["c"], groups=3), 0)
    padded = np.pad(wide, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    wide = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3)).max((-1, -2))
    (y,) = run_planned(module, x)
    np.testing.assert_allclose(y, convolved(wide, held["d"]).mean((2, 3)), rtol=2e-5, atol=1e-5)
    told = module.explain()
    assert told.count(" product ") == 2
    assert told.count(" reductions ") == 4


@pytest.mark.usefixtures("assembler")
@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_what_lies_between_convolutions_uses_the_sectors_that_it_asks_for(dtype: str) -> None:
    """A block of ResNet behind a pool, with a bias that a residual follows and every second pixel: where channels were
    not last, rows of 49 pixels read a bias of one number, and slices every second number."""
    random = np.random.default_rng(2237)
    shapes = {"a": (32, 3, 3, 3), "b": (64, 32, 1, 1), "c": (64,), "d": (64, 32, 1, 1), "e": (64,)}
    held = {name: (random.standard_normal(shape) / 6).astype(dtype) for name, shape in shapes.items()}
    node, pads = helper.make_node, {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    nodes = [
        node("Conv", ["x", "a"], ["t0"], **pads), node("MaxPool", ["t0"], ["t1"], **pads),
        node("Conv", ["t1", "b", "c"], ["t2"], strides=[2, 2]), node("Conv", ["t1", "d", "e"], ["t3"], strides=[2, 2]),
        node("Relu", ["t3"], ["t4"]), node("Add", ["t2", "t4"], ["t5"]), node("GlobalAveragePool", ["t5"], ["t6"]),
        node("Cast", ["t6"], ["y"], to=onnx.TensorProto.FLOAT),
    ]  # fmt: skip
    module = fusion.compile(model(nodes, (2, 3, 14, 14), (2, 64, 1, 1), dtype, **held), target=TARGET)
    (form,) = module.specializations
    x, sectors = random.standard_normal((2, 3, 14, 14)).astype(dtype), Sectors(form.kernels)
    (y,) = run_planned(module, x, seen=sectors.add)
    wide = {name: each.astype(np.float64) for name, each in held.items()}
    padded = np.pad(convolved(x, held["a"]), ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    t1 = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3)).max((-1, -2))[:, :, ::2, ::2]
    t2, t3 = (
        np.einsum("nihw,oi->nohw", t1, wide[by][:, :, 0, 0]) + wide[bias][:, None, None]
        for by, bias in (("b", "c"), ("d", "e"))
    )
    expected = (t2 + np.maximum(t3, 0)).mean((2, 3), keepdims=True)
    tolerance = {"float32": 1e-5, "float16": 2**-9}[dtype]
    np.testing.assert_allclose(y, expected, rtol=tolerance, atol=tolerance)
    assert sectors.used
    assert all(used >= 0.95 * sectors.asked[kernel] for kernel, used in sectors.used.items())


@pytest.mark.usefixtures("assembler")
@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
def test_of_a_norm_between_casts_the_row_that_a_classifier_reads_is_made_alone() -> None:
    """As half precision is converted: the norm in float32, its result in float16, of which the first token is read."""
    random, node = np.random.default_rng(2238), helper.make_node
    held = {"g": random.standard_normal(192).astype(np.float32), "e": random.standard_normal(192).astype(np.float32)}
    nodes = [
        node("Cast", ["x"], ["t0"], to=onnx.TensorProto.FLOAT), node("LayerNormalization", ["t0", "g", "e"], ["t1"]),
        node("Cast", ["t1"], ["t2"], to=onnx.TensorProto.FLOAT16), node("Gather", ["t2", "first"], ["t3"], axis=1),
        node("Cast", ["t3"], ["y"], to=onnx.TensorProto.FLOAT),
    ]  # fmt: skip
    source = model(nodes, (8, 40, 192), (8, 192), "float16", **held, first=np.array(0))
    module = fusion.compile(source, target=TARGET)
    (form,) = module.specializations
    x, sectors = random.standard_normal((8, 40, 192)).astype(np.float16), Sectors(form.kernels)
    (y,) = run_planned(module, x, seen=sectors.add)
    first = x[:, 0].astype(np.float64)
    off = first - first.mean(-1, keepdims=True)
    expected = off / np.sqrt((off * off).mean(-1, keepdims=True) + 1e-5) * held["g"] + held["e"]
    np.testing.assert_allclose(y, expected, rtol=2**-10, atol=2**-12)
    assert [info.template for info in form.kernels.values()] == ["rows"]
    assert sectors.used.total() >= 0.95 * sectors.asked.total()
    assert sectors.asked.total() < x.nbytes


@pytest.mark.usefixtures("assembler")
@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
def test_indices_are_checked_and_outputs_may_have_several_shapes() -> None:
    table, x = np.random.default_rng(2235).standard_normal((7, 12)).astype(np.float32), np.array([3, -1, 0, 6])
    nodes = [
        helper.make_node("Gather", ["t", "x"], ["g"]), helper.make_node("LayerNormalization", ["g", "s"], ["n"]),
        helper.make_node("Gather", ["n", "first"], ["y"], axis=0), helper.make_node("Relu", ["n"], ["z"]),
    ]  # fmt: skip
    weights = {"t": table, "s": np.ones(12, np.float32), "first": np.array(1)}
    module = fusion.compile(model(nodes, (4,), (12,), "int64", {"z": (4, 12)}, **weights), target=TARGET)
    off = table[x] - table[x].mean(-1, keepdims=True)
    normal = off / np.sqrt((off * off).mean(-1, keepdims=True) + 1e-5)
    for result, expected in zip(run_planned(module, x), (normal[1], np.maximum(normal, 0)), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
    with pytest.raises(EmulatedError, match="stopped the kernel"):
        run_planned(module, np.array([3, 7, 0, 6]))


@pytest.mark.usefixtures("assembler")
@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("groups", [1, 2, 8])
def test_a_transposed_convolution_is_what_float64_says(groups: int, is_known: bool) -> None:
    """With weights of the model, and with such that only the run knows."""
    random = np.random.default_rng(2236)
    w, x = (random.standard_normal(shape).astype(np.float32) for shape in ((8, 5, 3, 3), (1, 8, 4, 5)))
    how = {"strides": [2, 2], "pads": [1, 1, 1, 1], "group": groups}
    source = model([helper.make_node("ConvTranspose", ["x", "w"], ["y"], **how)], x.shape, (1, 5 * groups, 7, 9), w=w)
    if not is_known:
        source.graph.ClearField("initializer")
        source.graph.input.append(helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, w.shape))
    module = fusion.compile(source, target=TARGET)
    expected = np.zeros((1, 5 * groups, 9, 11))
    taps = w.astype(np.float64).reshape(groups, -1, *w.shape[1:])
    for i, j in np.ndindex(4, 5):
        spread = np.einsum("gc,gcoyx->goyx", x[0, :, i, j].reshape(groups, -1), taps).reshape(1, -1, 3, 3)
        expected[:, :, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3] += spread
    (made,) = run_planned(module, x, *([] if is_known else [w]))
    np.testing.assert_allclose(made, expected[:, :, 1:-1, 1:-1], rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("assembler")
def test_the_file_has_the_code_and_a_run_says_what_to_do(tmp_path: Path) -> None:
    module = fusion.compile(feed_forward(), target=TARGET)
    (form,) = module.specializations
    again = fusion.compile(feed_forward(), target=TARGET).specializations[0]
    assert form.code.library() == again.code.library()
    names = zipfile.ZipFile(io.BytesIO(form.code.library())).namelist()
    assert {Path(name).suffix for name in names} == {".cu", ".cubin", ".ptx", ".json"}
    assert sum(form.code.plan.storages) < 4 * 18 * (72 + 32 + 32 + 10)  # less than all at a time
    module.save(tmp_path / "module.fusion")
    for use in (lambda: module(np.zeros((2, 9, 32), np.float32)), lambda: fusion.load(tmp_path / "module.fusion")):
        with pytest.raises(TargetError, match="no driver of CUDA devices") as error:
            use()
        assert "llvm" in error.value.hint
    saved = bytearray((tmp_path / "module.fusion").read_bytes())
    saved[saved.index(form.code.library()) + 200] ^= 0xFF
    (tmp_path / "damaged.fusion").write_bytes(saved)
    with pytest.raises(SavedFileError, match="damaged"):
        fusion.load(tmp_path / "damaged.fusion")


@pytest.mark.usefixtures("assembler")
@pytest.mark.parametrize(
    ("target", "error"),
    [
        ("cuda", "the device that is there, and there is none"),
        ("cuda -arch=sm_75", "no figures of CUDA devices of architecture 'sm_75'"),
    ],
)
def test_a_device_that_is_not_known_is_an_error(target: str, error: str) -> None:
    with pytest.raises(TargetError, match=error) as raised:
        fusion.compile(feed_forward(), target=target)
    assert "-arch=NAME" in raised.value.hint


@pytest.mark.parametrize(
    ("arch", "advice"),
    [
        ("sm_75", "kernels are written for sm_80 and later"),
        ("sm_86", "sm_86 runs code for sm_80"),
        ("sm_90a", "sm_90a runs code for sm_90"),
        ("sm_120", "sm_120 runs code for sm_90"),
        ("sm_8O", "or several of these"),
    ],
)
@pytest.mark.usefixtures("assembler")
def test_what_an_architecture_without_figures_runs_is_said(arch: str, advice: str) -> None:
    with pytest.raises(TargetError) as raised:
        context.resolve(f"cuda -arch={arch}")
    assert raised.value.hint.endswith(advice)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ("-arch=sm_80 -foo=1", "no option 'foo'"),
        ("-arch=sm_80 -mcpu=x", "no option 'mcpu'"),
        ("-arch=sm_80 -libs=cublas", "no option 'libs'"),
        ("-arch=sm_80 -max_num_threads=64", "no option 'max_num_threads'"),
        ("-arch=sm_80 -arch=sm_90", "'arch' more than once"),
    ],
)
def test_an_option_that_nothing_reads_is_an_error(options: str, error: str) -> None:
    with pytest.raises(TargetError, match=error):
        context.resolve(f"cuda {options}")


def test_a_branch_is_refused() -> None:
    then, other = (branch([node(name, ["x"], [name])], [name]) for name in ("Relu", "Neg"))
    model = make([choose("c", ["y"], then, other)], {"x": [4]}, ["y"])
    model.graph.input.append(helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, []))
    with pytest.raises(UnsupportedOperatorError, match="would need the host between two kernels") as raised:
        fusion.compile(model, target="cuda -arch=sm_80")
    assert "which branch is run depends" in raised.value.why
    assert raised.value.where == "If 'y'"


def test_a_branch_of_torch_is_refused_by_its_name() -> None:
    program = torch.export.export(Choice(), (torch.ones(4),))
    with pytest.raises(UnsupportedOperatorError, match="would need the host between two kernels") as raised:
        fusion.compile(program, target="cuda -arch=sm_80")
    assert raised.value.where.startswith("cond 'cond'")


class Choice(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.relu(), lambda x: x.tanh(), (x,))


def test_what_makes_a_shape_that_only_a_run_knows_is_named() -> None:
    nodes = [
        node("NonZero", ["x"], ["i"]),
        node("Transpose", ["i"], ["t"]),
        node("GatherND", ["x", "t"], ["y"]),
    ]
    with pytest.raises(UnsupportedOperatorError, match="GatherND, Transpose") as raised:
        fusion.compile(make(nodes, {"x": [4, 4]}, ["y"]), target="cuda -arch=sm_80")
    assert raised.value.why == "only a run knows the shape of its input 'i', because of NonZero 'i_node'"


def test_targets_of_tvm_are_taken() -> None:
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_90", "max_num_threads": 512})
    assert context.resolve(target).compiler.features == {"sm_90"}


@pytest.mark.usefixtures("assembler")
def test_open_dimensions_are_told_where_no_driver_is() -> None:
    with pytest.raises(ShapeError) as error:
        fusion.compile(small_models.mlp("batch"), TARGET)
    assert "one size of each dimension" in error.value.why
    assert "driver" not in str(error.value)


def test_nvrtc_without_its_builtins_is_to_be_installed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its error 7, as NVRTC 12.9 gives it where libnvrtc-builtins.so.12.9 is away."""
    library = SimpleNamespace(
        nvrtcCreateProgram=lambda *given: 0, nvrtcCompileProgram=lambda *given: 7, nvrtcDestroyProgram=lambda *given: 0
    )
    monkeypatch.setattr(nvrtc, "find_nvrtc", lambda: "libnvrtc.so.12")
    monkeypatch.setattr(nvrtc, "_library", lambda: library)
    monkeypatch.setattr(nvrtc, "_require_arch", lambda *given: None)
    monkeypatch.setattr(nvrtc, "_bytes", lambda *given: b"nvrtc: error: failed to open libnvrtc-builtins.so.12.9\0")
    with pytest.raises(NotInstalledError, match="not installed whole") as error:
        nvrtc.assemble("// a kernel", "sm_80")
    assert "builtins" in error.value.why
    assert "--force-reinstall" in error.value.hint


def test_without_nvrtc_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "find_nvrtc", lambda: None)
    monkeypatch.setattr(nvrtc, "find_nvcc", lambda: None)
    nvrtc._library.cache_clear()
    with pytest.raises(NotInstalledError, match="no compiler of CUDA C") as error:
        fusion.compile(feed_forward(), target=TARGET)
    assert nvrtc.PACKAGE in error.value.hint


@pytest.mark.usefixtures("assembler")
def test_an_operator_without_a_kernel_is_named() -> None:
    """Products of float64 have none."""
    node = helper.make_node
    nodes = [node("Cast", ["x"], ["d"], to=onnx.TensorProto.DOUBLE), node("MatMul", ["d", "w"], ["p"], name="product"),
             node("Cast", ["p"], ["y"], to=onnx.TensorProto.FLOAT)]  # fmt: skip
    with pytest.raises(UnsupportedOperatorError, match="matmul") as error:
        fusion.compile(model(nodes, (4, 5), (4, 3), w=np.ones((5, 3))), target=TARGET)
    assert "MatMul 'product'" in error.value.where
    assert error.value.why.count("declined") == 1


@pytest.mark.usefixtures("assembler")
@pytest.mark.parametrize(
    "function",
    [lambda x: x.double() @ x.double().mT, lambda x: F.conv2d(x.double()[None, None], x.double()[None, None, :, :2])],
)
def test_errors_have_the_module_and_the_line_of_torch(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    network = torch.nn.Sequential(Computed(function))
    with pytest.raises(UnsupportedOperatorError) as error:
        fusion.compile((network, (torch.ones(3, 7),)), target=TARGET)
    assert "module '0'" in error.value.where
    assert "in forward" in error.value.where
