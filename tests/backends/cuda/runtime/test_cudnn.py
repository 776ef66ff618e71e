"""cuDNN in the place of convolutions: what it is given, and what it makes of that on the fake driver."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import ml_dtypes  # noqa: F401, so that NumPy knows bfloat16
import numpy as np
import onnx
import pytest
import torch
from onnx import helper
from torch import Tensor, nn
from tvm import relax
from tvm.relax import op

import fusion
from backends.cuda.libraries import package
from backends.cuda.libraries.cudnn import api
from backends.cuda.libraries.cudnn.convolution import LibraryConvolution
from backends.cuda.libraries.cudnn.loaded import LoadedConvolution
from backends.cuda.libraries.cudnn.read import read_convolution_call
from backends.cuda.lowerings import LOWERINGS
from backends.cuda.packages import find_in_package
from backends.cuda.runtime.device import open_device
from backends.cuda.runtime.found_devices import find_devices
from fusion.context import resolve
from fusion.declined import Declined
from fusion.errors import ExecutionError, FusionError, InternalError, LimitError, NotInstalledError, TargetError
from fusion.tensors import numpy_dtype
from tests.backends.cpu.kernels.memory_bound import prim_func
from tests.backends.cuda.fake.fake_cuda import FakeCuda, FakeTensor
from tests.backends.cuda.fake.fake_cudnn import FakeCudnn, fake_cudnn
from tests.backends.cuda.test_models import model

NAMED = {"backends": ["cudnn", "cpu"], "cache": False}
HEADER = find_in_package("cudnn", "include/cudnn_graph.h")
CONVOLUTION = LibraryConvolution(
    images=2, size=(7, 9), channels=8, made=8, taps=(3, 3), strides=(1, 1), dilations=(1, 1), before=(1, 1),
    after=(1, 1), groups=1, dtype="float16", tfloat32=False, has_bias=True, has_residual=False, has_relu=True,
)  # fmt: skip


@pytest.fixture
def cudnn(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> FakeCudnn:
    """Have the fake library in the place of the package's."""
    path = str(fake_cudnn())
    monkeypatch.setattr(api, "find_in_package", lambda name, pattern: path)
    monkeypatch.setattr(package, "version", lambda name: "9.28")
    return FakeCudnn()


def convolved(b: relax.BlockBuilder, x: relax.Expr, w: relax.Expr, **how: object) -> relax.Expr:
    """Return the convolution of images by weights that lie o, r, s, c."""
    (lower,) = LOWERINGS["relax.nn.conv2d"]
    turned = op.permute_dims(w, [0, 3, 1, 2])
    call = op.nn.conv2d(x, b.emit(turned), data_layout="NHWC", kernel_layout="OIHW", **how)
    return lower.apply(b, b.normalize(call))


def read(
    build: Callable[..., relax.Expr], *shapes: tuple[int, ...], dtype: str = "float16", tfloat32: bool = False
) -> LibraryConvolution:
    """Return the call that computes a graph of inputs of these shapes."""
    work = read_convolution_call(prim_func(build, [np.zeros(shape, dtype) for shape in shapes]), tfloat32=tfloat32).work
    assert isinstance(work, LibraryConvolution)
    return work


PLAIN = {"has_bias": False, "has_relu": False}
IMAGE, WEIGHT = (2, 7, 9, 8), (8, 3, 3, 8)


@pytest.mark.parametrize(
    ("how", "taps", "expected"),
    [
        ({"padding": 1}, (3, 3), ((1, 1), (1, 1), (1, 1), (1, 1))),
        ({}, (3, 3), ((1, 1), (1, 1), (0, 0), (0, 0))),
        ({"strides": (2, 3), "padding": (1, 2)}, (3, 3), ((2, 3), (1, 1), (1, 2), (1, 2))),
        ({"padding": (0, 1, 1, 0)}, (2, 2), ((1, 1), (1, 1), (0, 1), (1, 0))),
        ({"strides": 2, "padding": (0, 0, 1, 1)}, (3, 3), ((2, 2), (1, 1), (0, 0), (0, 0))),  # no window reaches it
        ({"strides": 2, "padding": (1, 1, 0, 0)}, (3, 3), ((2, 2), (1, 1), (1, 1), (0, 0))),
        ({"dilation": (2, 1), "padding": (2, 0)}, (3, 1), ((1, 1), (2, 1), (2, 0), (2, 0))),
        ({}, (7, 9), ((1, 1), (1, 1), (0, 0), (0, 0))),
        ({"strides": 2}, (1, 1), ((2, 2), (1, 1), (0, 0), (0, 0))),
    ],
)
def test_windows_are_what_they_are(how: dict[str, object], taps: tuple[int, int], expected: tuple[object, ...]) -> None:
    found = read(lambda b, x, w: convolved(b, x, w, **how), IMAGE, (8, *taps, 8))
    assert (found.images, found.size, found.channels, found.made, found.taps) == (2, (7, 9), 8, 8, taps)
    strides, dilations, before, _ = expected
    made = tuple(
        (size + sum(padding) - dilation * (tap - 1) - 1) // stride + 1
        for size, padding, dilation, tap, stride in zip(
            (7, 9), zip(found.before, found.after, strict=True), found.dilations, taps, found.strides, strict=True
        )
    )
    assert all(places == 1 or one == other for places, one, other in zip(made, found.strides, strides, strict=True))
    assert found.before == before
    assert all(tap == 1 or one == other for tap, one, other in zip(taps, found.dilations, dilations, strict=True))
    assert found.made_size == made
    func = prim_func(lambda b, x, w: convolved(b, x, w, **how), [np.zeros(IMAGE, "f2"), np.zeros((8, *taps, 8), "f2")])
    assert tuple(int(extent) for extent in func.params[-1].ty.shape) == (2, *made, 8)


def test_a_bias_a_residual_and_a_maximum_are_operations() -> None:
    def whole(b: relax.BlockBuilder, x: relax.Expr, w: relax.Expr, p: relax.Expr, r: relax.Expr) -> relax.Expr:
        return op.nn.relu(op.add(r, op.add(convolved(b, x, w, padding=1), p)))

    found = read(whole, IMAGE, WEIGHT, (1, 1, 1, 8), (2, 7, 9, 8))
    assert found == replace(CONVOLUTION, has_residual=True)
    assert str(found) == "2 x 7 x 9 x 8, 8 of 3 x 3 float16 + bias + residual, relu"
    found = read(lambda b, x, w, p: op.add(convolved(b, x, w), p), IMAGE, WEIGHT, (8,), dtype="float32", tfloat32=True)
    assert (found.multiplied, found.has_bias, found.has_relu) == ("tfloat32", True, False)


@pytest.mark.parametrize(
    ("build", "shapes", "why"),
    [
        (lambda b, x, w: op.nn.relu(convolved(b, x, w)), [IMAGE, WEIGHT], "without a bias"),
        (lambda b, x, w, r: op.add(convolved(b, x, w, padding=1), r), [IMAGE, WEIGHT, (2, 7, 9, 8)], "without a bias"),
        (lambda b, x, w: op.nn.gelu_tanh(convolved(b, x, w)), [IMAGE, WEIGHT], "no GELU"),
        (lambda b, x, w: op.sigmoid(convolved(b, x, w)), [IMAGE, WEIGHT], "no bias, residual, maximum"),
        (
            lambda b, x, w, p: op.add(op.nn.relu(op.add(convolved(b, x, w), p)), p), [IMAGE, WEIGHT, (8,)],
            "no bias, residual, maximum",
        ),
        (lambda b, x, w: op.permute_dims(convolved(b, x, w), [0, 3, 1, 2]), [IMAGE, WEIGHT], "lie as its sums"),
        (lambda b, x, w: convolved(b, x, w), [(2, 7, 9, 3), (8, 3, 3, 3)], "16 bytes do not divide"),
        (lambda b, x, w: convolved(b, x, w), [IMAGE, (12, 3, 3, 8)], "16 bytes do not divide"),
        (lambda b, x, w: convolved(b, op.nn.relu(x), w), [IMAGE, WEIGHT], "no convolution"),
        (lambda b, x, w: op.matmul(x, w), [(4, 8), (8, 16)], "no convolution"),
    ],
)  # fmt: skip
def test_what_it_has_no_engine_for_is_declined(
    build: Callable[..., relax.Expr], shapes: list[tuple[int, ...]], why: str
) -> None:
    with pytest.raises(Declined, match=why):
        read(build, *shapes)


def test_float32_is_not_rounded_unasked() -> None:
    with pytest.raises(Declined, match="does not round to tfloat32"):
        read(lambda b, x, w: convolved(b, x, w), IMAGE, WEIGHT, dtype="float32")


def test_a_convolution_turned_around_is_none() -> None:
    (lower,) = LOWERINGS["relax.nn.conv2d_transpose"]

    def spread(b: relax.BlockBuilder, x: relax.Expr, w: relax.Expr) -> relax.Expr:
        turned = b.emit(op.permute_dims(w, [3, 0, 1, 2]))
        call = op.nn.conv2d_transpose(x, turned, strides=(2, 2), data_layout="NHWC", kernel_layout="IOHW")
        return lower.apply(b, b.normalize(call))

    with pytest.raises(Declined, match="no convolution"):
        read(spread, IMAGE, WEIGHT)


def reference(work: LibraryConvolution, image: np.ndarray, weight: np.ndarray, *added: np.ndarray) -> np.ndarray:
    """Return what a convolution is, in float64."""
    padding = [(0, 0), *zip(work.before, work.after, strict=True), (0, 0)]
    wide, by = np.pad(image.astype(np.float64), padding), weight.astype(np.float64)
    (height, width), group, depth = work.made_size, work.made // work.groups, work.channels // work.groups
    result = np.zeros((work.images, height, width, work.made))
    for row, column in np.ndindex(*work.taps):
        top, left = row * work.dilations[0], column * work.dilations[1]
        seen = wide[:, top :: work.strides[0], left :: work.strides[1]][:, :height, :width]
        for each in range(work.groups):
            channels, made = slice(each * depth, (each + 1) * depth), slice(each * group, (each + 1) * group)
            result[..., made] += seen[..., channels] @ by[made, row, column].T
    result += sum(each.astype(np.float64) for each in added)
    return np.maximum(result, 0) if work.has_relu else result


def run(work: LibraryConvolution) -> tuple[np.ndarray, np.ndarray]:
    """Return what the library makes of a convolution of small whole numbers, and what that is."""
    draw = np.random.default_rng(5)
    shapes = [(work.images, *work.size, work.channels), (work.made, *work.taps, work.channels // work.groups)]
    shapes += [(work.made,)] if work.has_bias else []
    shapes += [(work.images, *work.made_size, work.made)] if work.has_residual else []
    image, weight, *added = (draw.integers(-2, 3, shape).astype(work.dtype) for shape in shapes)
    expected = reference(work, image, weight, *added).astype(work.dtype)
    result, workspace = np.full(expected.shape, np.nan, work.dtype), np.zeros(4096, np.uint8)
    device = open_device(find_devices()[0])
    tensors = [FakeTensor(each) for each in (image, weight, result, *added, workspace)]
    loaded, copy = LoadedConvolution(device, work), np.empty_like(expected)
    with device.current():
        for each in tensors:
            device.call("cuStreamSynchronize", each.stream)
        loaded.run([each.address for each in tensors[:-1]], tensors[-1].address, 1)
        device.call("cuMemcpyDtoH_v2", copy.ctypes.data, tensors[2].address, copy.nbytes)
    return copy, expected


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({}, "2x8x7x9 by 8x8x3x3 type 2, strides 1 1, dilations 1 1, before 1 1, after 1 1, bias, relu"),
        ({"dtype": "bfloat16", "strides": (2, 3), "has_residual": True}, "type 9, strides 2 3"),
        ({"dtype": "float32", "tfloat32": True, "dilations": (2, 1), **PLAIN}, "dilations 2 1"),
        ({"before": (0, 1), "after": (2, 0), "has_relu": False}, "before 0 1, after 2 0, bias"),
        ({"groups": 2, "has_residual": True}, "by 8x4x3x3"),
        ({"groups": 8, "made": 16, "taps": (3, 1), "before": (1, 0), "after": (1, 0)}, "by 16x1x3x1"),
    ],
)  # fmt: skip
def test_windows_and_numbers_are_convolved(changed: dict[str, object], told: str, cudnn: FakeCudnn) -> None:
    result, expected = run(replace(CONVOLUTION, **changed))  # type: ignore[arg-type]
    np.testing.assert_array_equal(result, expected)
    (line,) = cudnn.convolutions
    assert told in line


def test_the_maximum_passes_nan_on(cudnn: FakeCudnn) -> None:
    work = replace(CONVOLUTION, taps=(1, 1), before=(0, 0), after=(0, 0))
    device = open_device(find_devices()[0])
    image = np.ones((2, 7, 9, 8), np.float16)
    image[0, 0, 0, 3] = np.nan
    given = [image, -np.ones((8, 1, 1, 8), np.float16), np.zeros((2, 7, 9, 8), np.float16), np.zeros(8, np.float16)]
    tensors = [FakeTensor(each) for each in (*given, np.zeros(4096, np.uint8))]
    loaded, copy = LoadedConvolution(device, work), np.empty_like(given[2])
    with device.current():
        for each in tensors:
            device.call("cuStreamSynchronize", each.stream)
        loaded.run([each.address for each in tensors[:-1]], tensors[-1].address, 1)
        device.call("cuMemcpyDtoH_v2", copy.ctypes.data, tensors[2].address, copy.nbytes)
    assert np.isnan(copy[0, 0, 0]).all()
    assert (copy[1] == 0).all()


def network() -> onnx.ModelProto:
    """A convolution with a bias and a maximum, one with a residual too, and one whose maximum has no bias."""
    random = np.random.default_rng(22)
    shapes = {"u": (16, 8, 3, 3), "p": (16,), "v": (16, 16, 3, 3), "q": (16,), "d": (4, 16, 1, 1)}
    held = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "u", "p"], ["a"], pads=[1, 1, 1, 1], strides=[2, 2]), node("Relu", ["a"], ["b"]),
        node("Conv", ["b", "v", "q"], ["c"], pads=[1, 1, 1, 1]), node("Add", ["c", "b"], ["e"]),
        node("Relu", ["e"], ["f"]), node("Conv", ["f", "d"], ["g"]), node("Relu", ["g"], ["y"]),
    ]  # fmt: skip
    return model(nodes, (2, 8, 10, 12), (2, 4, 5, 6), **held)


def in_float64(x: np.ndarray) -> np.ndarray:
    held = {each.name: onnx.numpy_helper.to_array(each) for each in network().graph.initializer}
    lies = {name: np.moveaxis(each, 1, -1) for name, each in held.items() if each.ndim == 4}
    plain = replace(CONVOLUTION, size=(10, 12), made=16, strides=(2, 2))
    b = reference(plain, np.moveaxis(x, 1, -1), lies["u"], held["p"])
    inner = replace(plain, size=(5, 6), channels=16, strides=(1, 1))
    f = reference(inner, b, lies["v"], held["q"], b)
    last = replace(inner, taps=(1, 1), before=(0, 0), after=(0, 0), made=4)
    return np.moveaxis(reference(last, f, lies["d"]), -1, 1)


def test_a_model_runs_its_convolutions_on_the_library(tmp_path: Path, cudnn: FakeCudnn, fake: FakeCuda) -> None:
    """Launched one by one, as graphs, on arrays of the host and of the device, and from a file."""
    fusion.compile(network(), "cuda -arch=sm_80", precision="tf32", **NAMED).save(tmp_path / "m.fusion")
    module = fusion.load(tmp_path / "m.fusion")
    assert [info.template for info in module.specializations[0].kernels.values()].count("cudnn") == 2
    text = str(module.explain())
    assert "cudnn" in text
    assert "cudnn declined: cuDNN has no residual or maximum without a bias" in text
    x = np.random.default_rng(3).standard_normal((2, 8, 10, 12)).astype(np.float32)
    for scale in (1, -2, 3):
        expected = in_float64(scale * x)
        np.testing.assert_allclose(module(scale * x)[0], expected, rtol=0, atol=4e-3 * np.abs(expected).max())
        given = FakeTensor(scale * x)
        np.testing.assert_allclose(module(given)[0].numpy(), expected, rtol=0, atol=4e-3 * np.abs(expected).max())
    assert fake.calls("cuGraphAddChildGraphNode") >= 2
    assert fake.message == ""
    first, second = cudnn.convolutions[:2]
    assert first.endswith("type 0, strides 2 2, dilations 1 1, before 1 1, after 1 1, bias, relu")
    assert second.endswith(", residual, bias, relu")


class Residual(nn.Module):
    """Two convolutions with biases, and what they read added to the second."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.second(torch.relu(self.first(x))) + x)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_a_model_of_narrow_numbers_gives_it_biases_as_narrow(dtype: torch.dtype, cudnn: FakeCudnn) -> None:
    """Sums are float32 in the graph, and so is what is added to them; it has engines for tensors of one type alone."""
    torch.manual_seed(3)
    net, x = nn.Sequential(Residual(16), Residual(16)).eval().to(dtype), torch.randn(2, 16, 7, 9).to(dtype)
    module = fusion.compile((net, (x,)), "cuda -arch=sm_80", **NAMED)
    kernels = module.specializations[0].kernels.values()
    assert {info.template for info in kernels} == {"cudnn", "transposes"}
    assert "declined" not in str(module.explain())
    given = x.float().numpy().astype(numpy_dtype(str(dtype).removeprefix("torch.")))
    made = np.asarray(module(given)[0]).astype(np.float64)
    expected = net.double()(x.double()).detach().numpy()
    np.testing.assert_allclose(made, expected, rtol=0, atol=4 * torch.finfo(dtype).eps * np.abs(expected).max())
    assert [each.rpartition("after 1 1, ")[2] for each in cudnn.convolutions[:4]] == [
        "bias, relu", "residual, bias, relu", "bias, relu", "residual, bias, relu"
    ]  # fmt: skip


def test_descriptors_end_with_what_made_them(cudnn: FakeCudnn) -> None:
    before = cudnn.descriptors
    result, expected = run(CONVOLUTION)
    np.testing.assert_array_equal(result, expected)
    assert cudnn.descriptors == before


@pytest.mark.parametrize(
    ("name", "status", "error", "hint"),
    [
        ("cudnnCreate", 1001, ExecutionError, "cudnn"),
        ("cudnnCreate", 4004, LimitError, "smaller batches"),
        ("cudnnCreate", 1008, TargetError, "without"),
        ("cudnnBackendFinalize", 2000, InternalError, "report it"),
        ("cudnnBackendGetAttribute", 3007, TargetError, "without"),
        ("cudnnBackendExecute", 5001, ExecutionError, "another process"),
        ("cudnnSetStream", 2000, InternalError, "report it"),
    ],
)
def test_what_it_refuses_is_told(
    name: str, status: int, error: type[FusionError], hint: str, cudnn: FakeCudnn, fake: FakeCuda
) -> None:
    cudnn.fail(name, status)
    with pytest.raises(error) as told:
        run(CONVOLUTION)
    assert f"{name} returned {status}" in told.value.why
    assert hint in told.value.hint


def test_where_none_is_ranked_it_falls_back(cudnn: FakeCudnn) -> None:
    cudnn.propose(5)
    result, expected = run(CONVOLUTION)
    np.testing.assert_array_equal(result, expected)
    cudnn.propose(-1)
    with pytest.raises(TargetError, match="no engine") as error:
        LoadedConvolution(open_device(find_devices()[0]), CONVOLUTION)
    assert error.value.where == "2 x 7 x 9 x 8, 8 of 3 x 3 float16 + bias, relu"


def test_without_the_package_one_line_says_so(
    tmp_path: Path, cudnn: FakeCudnn, monkeypatch: pytest.MonkeyPatch
) -> None:
    fusion.compile(network(), "cuda -arch=sm_80", precision="tf32", **NAMED).save(tmp_path / "m.fusion")
    path = str(fake_cudnn())
    missing = {"cudnn": "nvidia-cudnn-cu12 is not installed", "cublas": "cuBLASLt, which it calls, is not installed"}
    for lacking, why in missing.items():
        found = path if lacking != "cudnn" else None
        monkeypatch.setattr(api, "find_in_package", lambda name, pattern, it=found: it if name == "cudnn" else None)
        api.opened.clear()
        with pytest.raises(NotInstalledError, match="needs cuDNN") as error:
            fusion.load(tmp_path / "m.fusion")
        assert (error.value.why, "pip install nvidia-cudnn-cu12" in error.value.hint) == (why, True)
    broken = tmp_path / "libcudnn.so.9"
    broken.write_bytes(b"no library")
    monkeypatch.setattr(api, "find_in_package", lambda name, pattern: str(broken))
    with pytest.raises(NotInstalledError, match="needs cuDNN, which cannot be loaded"):
        fusion.load(tmp_path / "m.fusion")
    monkeypatch.undo()
    api.opened.clear()
    if find_in_package("cudnn", "lib/libcudnn.so.9") is None:
        (line,) = resolve("cuda -arch=sm_80", backends=["cudnn", "cpu"]).skipped
        assert line == "the backend 'cudnn' is not installed and runs nothing; pip install nvidia-cudnn-cu12"


@pytest.mark.skipif(HEADER is None, reason="there is no cudnn_graph.h of the package")
def test_the_numbers_are_those_of_the_header() -> None:
    text = Path(str(HEADER)).read_text()
    found = re.findall(r"CUDNN_(\w+)(?:\s+CUDNN_DEPRECATED_ENUM)?\s*=\s*(\d+)\b", text)
    known = {name: int(number) for name, number in found}
    assert {known[f"BACKEND_{name}_DESCRIPTOR"]: name for name in api.KINDS} == {
        at: name for name, at in api.KINDS.items()
    }
    types = {
        "HANDLE", "DATA_TYPE", "BOOLEAN", "INT64", "FLOAT", "VOID_PTR", "CONVOLUTION_MODE", "HEUR_MODE", 
        "NAN_PROPOGATION", "NUMERICAL_NOTE", "POINTWISE_MODE", "BACKEND_DESCRIPTOR",
    }  # fmt: skip
    numbers = {known[f"TYPE_{name}"]: name for name in types}
    for name, (number, of) in api.ATTRIBUTES.items():
        assert (name, known[f"ATTR_{name}"]) == (name, number)
        documented = re.search(rf"CUDNN_ATTR_{name} \(CUDNN_TYPE_(\w+)", text)
        assert documented is None or documented[1] == numbers[of.number]
    assert {name: known[f"NUMERICAL_NOTE_{name}"] for name in api.NOTES} == api.NOTES
    named = {"float32": "FLOAT", "float16": "HALF", "bfloat16": "BFLOAT16"}
    assert {dtype: known[f"DATA_{name}"] for dtype, name in named.items()} == api.DATA_TYPES
    modes = "CROSS_CORRELATION", "POINTWISE_ADD", "POINTWISE_RELU_FWD", "PROPAGATE_NAN"
    assert tuple(map(known.__getitem__, modes)) == (api.CROSS_CORRELATION, api.ADD, api.RELU, api.PROPAGATE_NAN)
    assert (known["HEUR_MODE_A"], known["HEUR_MODE_FALLBACK"]) == (api.RANKED, api.FALLBACK)
    memory = {known[f"STATUS_INTERNAL_ERROR_{name}_ALLOCATION_FAILED"] for name in ("HOST", "DEVICE")}
    assert set(api.API.no_memory) == memory
    lacking = [known[name] for name in known if name.startswith("STATUS_NOT_SUPPORTED")]
    assert {known["STATUS_SUBLIBRARY_LOADING_FAILED"], *lacking} <= set(api.API.lacking)
    failed = [known[name] for name in known if name.startswith("STATUS_EXECUTION_FAILED")]
    assert {known["STATUS_NOT_INITIALIZED"], *failed} <= set(api.API.failed)
