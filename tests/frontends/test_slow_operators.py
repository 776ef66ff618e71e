"""Where our kernels are far slower than ONNX Runtime's, it runs the nodes, in few subgraphs and as fast as alone."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnxruntime.quantization import QuantType

import fusion
from backends.host_features import features_of
from fusion import context
from fusion.compiled_module import CompiledModule
from fusion.failures import tells_of_defect
from fusion.frontends import import_model
from tests.frontends.narrow import networks, quantized

pytestmark = pytest.mark.optimised
SIGNED = QuantType.QInt8
MOST = 1.2
ATTEMPTS, SECONDS = 10, 2.0
"""For one model to get under that: a busy machine is left alone for some of them, and one call of the other's at a
moment's higher clock is forgotten with its attempt. All but a few need a tenth of a second."""

# How many subgraphs each is to have; 0 for the whole model being one, or none of it.
MODELS: dict[str, tuple[int, Callable[[], onnx.ModelProto]]] = {
    "half images": (0, lambda: networks.images("float16")),
    "half separable": (0, lambda: networks.separable("float16", 56)),
    "half separable, sigmoid": (0, lambda: networks.separable("float16", 56, "Sigmoid")),
    "half decoder": (0, lambda: networks.decoder("float16")),
    "half transformer": (0, lambda: networks.transformer("float16")),
    "half recurrent": (0, lambda: networks.recurrent("float16", 64, 128)),
    "half dense": (0, lambda: networks.dense("float16")),
    "half between casts": (0, networks.between_casts),
    "double dense": (0, lambda: networks.dense("float64")),
    "double and float": (2, networks.two_precisions),
    "pairs": (0, lambda: quantized.static(networks.images())),
    "pairs by channel": (0, lambda: quantized.static(networks.images(), SIGNED, per_channel=True)),
    "signed pairs": (0, lambda: quantized.static(networks.images(), SIGNED, SIGNED)),
    "pairs, separable": (0, lambda: quantized.static(networks.separable(size=56, activation="Relu"), SIGNED)),
    "pairs, upsampling": (0, lambda: quantized.static(networks.upsampling(), SIGNED)),
    "operators on bytes": (0, lambda: quantized.operators(networks.images())),
    "dynamic images": (0, lambda: quantized.dynamic(networks.images())),
    "dynamic dense": (0, lambda: quantized.dynamic(networks.dense(activation="Relu"), SIGNED)),
    "dynamic recurrent": (0, lambda: quantized.dynamic(networks.recurrent("float32", 64, 128), SIGNED)),
    "dynamic transformer": (0, lambda: quantized.dynamic(networks.transformer(), SIGNED)),
    "transformer of pairs": (0, lambda: quantized.static(networks.transformer(), SIGNED)),
    "four bits": (0, quantized.narrow_weights),
}  # fmt: skip
BESIDE_BYTES = {
    "dynamic recurrent": lambda: bool(context.resolve().compiler.byte_products),
    "operators on bytes": lambda: ("uint8", "int8") in context.resolve().compiler.byte_products,
}
"""Of these one more where matrices, or convolutions, of bytes have kernels: the whole model is none then, but what lies
between them, or behind."""
DTYPES = {"tensor(float)": "float32", "tensor(float16)": "float16", "tensor(double)": "float64"}


def _session(model: onnx.ModelProto, *, optimised: bool = True) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _arrays(session: onnxruntime.InferenceSession, batch: int = 1) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    arrays = {}
    for value in session.get_inputs():
        shape = [extent if isinstance(extent, int) else batch for extent in value.shape]
        arrays[value.name] = rng.normal(size=shape).astype(DTYPES[value.type])
    return arrays


def _compare(module: CompiledModule, model: onnx.ModelProto, batch: int = 1) -> None:
    """Assert that results are at most twice as far, and a hundredth, from those of the model node by node as ONNX
    Runtime's are, which adds up what its optimisations round otherwise: steps of bytes."""
    session, exact_session = _session(model), _session(model, optimised=False)
    arrays = _arrays(session, batch)
    results = (module(*arrays.values()), session.run(None, arrays), exact_session.run(None, arrays))
    for each in zip(*results, strict=True):
        ours, theirs, exact = (result.astype("float64") for result in each)
        tolerance = 2 * np.abs(theirs - exact).max(initial=0) + 1e-2
        np.testing.assert_allclose(ours, exact, rtol=1e-2, atol=tolerance)


def _subgraphs(module: CompiledModule) -> int:
    (form,) = module.specializations
    return 0 if form.code is None else len(form.subgraphs)


def _is_skylake_x(features: frozenset[str]) -> bool:
    return "avx512f" in features and "avx512vnni" not in features


BEHIND: dict[str, Callable[[frozenset[str]], bool]] = {
    "half separable, sigmoid": lambda features: "avx512f" not in features,
    "double and float": _is_skylake_x,
    "transformer of pairs": lambda features: "avx512vnni" not in features,
}
"""On which CPUs models are known to be behind: 1.49 times and 1.23 times ONNX Runtime's time on a vCPU of Zen 3; 1.49
times on one of Skylake-X at 1.4 GHz, where four fifths of our time are calls of ONNX Runtime, which was not looked
into."""


@pytest.mark.parametrize("name", MODELS)
def test_as_fast_as_onnx_runtime(name: str) -> None:
    is_behind = BEHIND.get(name, lambda features: False)(features_of(context.resolve().compiler.target))
    if any(_is_fast(name) for _ in range(1 if is_behind else ATTEMPTS)):
        return
    if is_behind:
        pytest.xfail("it is known to be behind on this CPU")
    pytest.fail(f"it takes more than {MOST} times as long in {ATTEMPTS} attempts")


def _is_fast(name: str) -> bool:
    subgraphs, make = MODELS[name]
    model = make()
    module, session = fusion.compile(model, threads=1), _session(model)
    _compare(module, model)
    assert _subgraphs(module) == subgraphs + (name in BESIDE_BYTES and BESIDE_BYTES[name]())
    arrays = _arrays(session)
    inputs = list(arrays.values())
    runs: tuple[Callable[[], object], ...] = (lambda: module(*inputs), lambda: session.run(None, arrays))
    best, end = [float("inf")] * 2, time.monotonic() + SECONDS
    for turn in range(100_000):
        for index, run in enumerate(runs):
            started = time.perf_counter()
            run()
            best[index] = min(best[index], time.perf_counter() - started)
        if time.monotonic() > end or (turn > 20 and best[0] <= MOST * best[1]):
            break
    return best[0] <= MOST * best[1]


def test_the_operator_at_fault_is_named() -> None:
    report = fusion.compile(networks.double_between_casts(), threads=1).explain()
    assert "because of MatMul 'matmul_1': float64 MatMul: ONNX Runtime's kernels are 10 times as fast as ours" in report
    report = fusion.compile(networks.two_precisions(), threads=1).explain()
    line = next(line for line in report.splitlines() if "MatMul 'matmul_1'" in line)
    assert ": float64 MatMul" in line
    assert "Add 'add_2', Relu 'relu_3': it belongs to MatMul 'matmul_1', which ONNX Runtime runs" in report


@pytest.mark.parametrize("name", [name for name in MODELS if name.startswith("half")])
def test_half_precision_stays_here(name: str) -> None:
    assert not import_model(MODELS[name][1]()).fallbacks


def test_strict_keeps_all_here() -> None:
    for options in ({"strict": True}, {"backends": ["cpu"]}):
        module = fusion.compile(networks.double_between_casts(), threads=1, **options)  # type: ignore[arg-type]
        assert not module.specializations[0].fallbacks
        _compare(module, networks.double_between_casts())


def test_what_is_small_stays() -> None:
    for dtype in ("float16", "float64"):
        model = networks.dense(dtype, 1, width=16)
        assert not import_model(model).fallbacks


@pytest.mark.parametrize("by_channel", [False, True])
@pytest.mark.parametrize("dtypes", [(), (SIGNED,), (SIGNED, SIGNED)])
def test_small_pairs_stay(dtypes: tuple[QuantType, ...], by_channel: bool) -> None:
    model = quantized.static(networks.small_images(), *dtypes, per_channel=by_channel)
    module = fusion.compile(model, threads=1)
    (form,) = module.specializations
    assert not form.fallbacks
    assert not any(map(tells_of_defect, form.notes))
    _compare(module, model)


def test_open_sizes() -> None:
    for model in (networks.images("float16", batch="n"), networks.dense("float64", rows="n")):
        module = fusion.compile(model, threads=1, wait=True)
        for batch in (64, 1):
            _compare(module, model, batch)


def branching() -> onnx.ModelProto:
    """Return a matmul in float32, and one in float64 in both branches of an If."""
    branches = []
    for name in ("Relu", "Sigmoid"):
        net = networks.Network("float64")
        x = net.op("Cast", "matmul_0", to=TensorProto.DOUBLE)
        x = net.op("Cast", net.op(name, net.op("MatMul", x, net.weight(256, 256))), to=TensorProto.FLOAT)
        result = helper.make_tensor_value_info(f"{name}_result", TensorProto.FLOAT, [64, 256])
        net.nodes.append(helper.make_node("Identity", [x], [result.name]))
        branches.append(helper.make_graph(net.nodes, name, [], [result], net.weights))
    net = networks.Network("float32")
    x = net.op("MatMul", net.input([64, 256]), net.weight(256, 256))
    condition = net.op("Cast", net.op("ReduceMax", x, keepdims=0), to=TensorProto.BOOL)
    return net.model(net.op("If", condition, then_branch=branches[0], else_branch=branches[1]))


def test_branches() -> None:
    model = branching()
    module = fusion.compile(model, threads=1)
    (form,) = module.specializations
    assert sorted(node.op for node in form.fallbacks if node.op != "Cast")[:2] == ["MatMul", "MatMul"]
    assert form.code is not None
    _compare(module, model)
