"""A layer of a transformer, and convolutions, in each precision: on tensor cores, an attention in one kernel."""

from __future__ import annotations

import ml_dtypes  # noqa: F401, so that NumPy knows bfloat16
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from tvm import relax

import fusion
from backends.cuda.lowerings import narrow_shift
from fusion import CompiledModule
from fusion.tensors import as_numpy
from tests.backends.cuda.emulator.emulate import WHY_NOT
from tests.backends.cuda.planned import run_planned
from tests.backends.cuda.test_models import convolved
from tests.backends.cuda.written_code import read_code

pytestmark = [pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT), pytest.mark.usefixtures("assembler")]

_BATCH, _ROWS, _HEADS, _DEPTH = 2, 20, 2, 16
_WIDTH, _INNER = _HEADS * _DEPTH, 64
_SHAPES = {
    "q": (_WIDTH, _WIDTH), "k": (_WIDTH, _WIDTH), "v": (_WIDTH, _WIDTH), "o": (_WIDTH, _WIDTH), "g": (_WIDTH,),
    "e": (_WIDTH,), "u": (_WIDTH, _INNER), "d": (_INNER, _WIDTH), "qb": (_WIDTH,), "ub": (_INNER,),
}  # fmt: skip


def weights(dtype: str) -> dict[str, np.ndarray]:
    random = np.random.default_rng(2240)
    return {name: (random.standard_normal(shape) / 6).astype(np.dtype(dtype)) for name, shape in _SHAPES.items()}


def layer(dtype: str) -> onnx.ModelProto:
    """Return a layer of an encoder: attention with a mask, and a block of two products; each with a residual."""
    node = helper.make_node
    heads = ["heads"]
    nodes = [
        node("LayerNormalization", ["x", "g", "e"], ["n"]),
        *(node("MatMul", ["n", name], [f"{name}1"]) for name in "qkv"), node("Add", ["q1", "qb"], ["q2"]),
        *(node("Reshape", [source, *heads], [f"{source}r"]) for source in ("q2", "k1", "v1")),
        node("Transpose", ["q2r"], ["qh"], perm=[0, 2, 1, 3]), node("Transpose", ["k1r"], ["kh"], perm=[0, 2, 3, 1]),
        node("Transpose", ["v1r"], ["vh"], perm=[0, 2, 1, 3]), node("MatMul", ["qh", "kh"], ["s"]),
        node("Mul", ["s", "scale"], ["s1"]), node("Add", ["s1", "mask"], ["s2"]), node("Softmax", ["s2"], ["w"]),
        node("MatMul", ["w", "vh"], ["a"]), node("Transpose", ["a"], ["a1"], perm=[0, 2, 1, 3]),
        node("Reshape", ["a1", "rows"], ["a2"]), node("MatMul", ["a2", "o"], ["p"]), node("Add", ["p", "x"], ["r"]),
        node("MatMul", ["r", "u"], ["f"]), node("Add", ["f", "ub"], ["f1"]), node("Relu", ["f1"], ["f2"]),
        node("MatMul", ["f2", "d"], ["f3"]), node("Add", ["f3", "r"], ["y"]),
    ]  # fmt: skip
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    held = {
        **weights(dtype), "scale": np.array(_DEPTH**-0.5).astype(dtype),
        "heads": np.array([_BATCH, _ROWS, _HEADS, _DEPTH]), "rows": np.array([_BATCH, _ROWS, _WIDTH]),
    }  # fmt: skip
    given = [("x", (_BATCH, _ROWS, _WIDTH)), ("mask", (_BATCH, 1, 1, _ROWS))]
    graph = helper.make_graph(
        nodes, "layer", [helper.make_tensor_value_info(name, kind, shape) for name, shape in given],
        [helper.make_tensor_value_info("y", kind, given[0][1])],
        [numpy_helper.from_array(array, name) for name, array in held.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])


def inputs(dtype: str) -> list[np.ndarray]:
    random = np.random.default_rng(2241)
    x = random.standard_normal((_BATCH, _ROWS, _WIDTH)).astype(np.dtype(dtype))
    return [x, np.where(random.random((_BATCH, 1, 1, _ROWS)) < 0.3, -1e4, 0).astype(np.dtype(dtype))]


def layer_in_float64(dtype: str) -> np.ndarray:
    x, mask, *_ = (each.astype(np.float64) for each in inputs(dtype))
    held = {name: each.astype(np.float64) for name, each in weights(dtype).items()}
    off = x - x.mean(-1, keepdims=True)
    n = off / np.sqrt((off * off).mean(-1, keepdims=True) + 1e-5) * held["g"] + held["e"]
    q, k, v = (
        each.reshape(_BATCH, _ROWS, _HEADS, _DEPTH).transpose(0, 2, 1, 3)
        for each in (n @ held["q"] + held["qb"], n @ held["k"], n @ held["v"])
    )
    scores = q @ k.swapaxes(-1, -2) * _DEPTH**-0.5 + mask
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    a = (powers / powers.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3).reshape(_BATCH, _ROWS, _WIDTH)
    r = a @ held["o"] + x
    return np.maximum(r @ held["u"] + held["ub"], 0) @ held["d"] + r


def sources_of(module: CompiledModule) -> str:
    """Return the CUDA C of a module's kernels, each without what stands before it."""
    (form,) = module.specializations
    assert form.code is not None
    kernels = read_code(form.code.library()).values()
    return "\n".join(launch.kernel.source.rpartition("__global__")[2] for each in kernels for launch in each.launches)


@pytest.mark.parametrize(
    ("dtype", "precision", "multiplied", "tolerance"),
    [
        ("float16", "fp32", "float16", 2**-9), ("float32", "fp32", "floats", 2**-19),
        ("float32", "tf32", "tfloat32", 2**-9), ("float32", "bf16", "bfloat16", 2**-6),
        ("bfloat16", "fp32", "bfloat16", 2**-6),
    ],
)  # fmt: skip
def test_a_layer_of_an_encoder_has_its_attention_in_one_kernel(
    dtype: str, precision: str, multiplied: str, tolerance: float
) -> None:
    module = fusion.compile(layer(dtype), target="cuda -arch=sm_80", precision=precision)
    told, sources = module.explain(), sources_of(module)
    assert told.count(" attention ") == 1
    assert told.count(" product ") >= 4
    used = {name for name in ("float16", "bfloat16", "tfloat32", "floats") if f"multiply_{name}" in sources}
    assert used == {multiplied}
    (y,) = run_planned(module, *inputs(dtype))
    np.testing.assert_allclose(y.astype(np.float64), layer_in_float64(dtype), rtol=tolerance, atol=4 * tolerance)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_weights_stay_as_narrow_as_they_are(dtype: str) -> None:
    (form,) = fusion.compile(layer(dtype), target="cuda -arch=sm_80").specializations
    assert form.code is not None
    held = sum(as_numpy(weight).nbytes for weight in form.code.weights)
    assert held < 1.1 * sum(array.nbytes for array in weights(dtype).values())


def network(dtype: str) -> tuple[onnx.ModelProto, np.ndarray, np.ndarray]:
    """Return two convolutions with a residual, an input, and what float64 says of it."""
    random, node, pads = np.random.default_rng(2242), helper.make_node, {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    x = random.standard_normal((1, 16, 9, 9)).astype(np.dtype(dtype))
    held = {name: (random.standard_normal((16, 16, 3, 3)) / 8).astype(np.dtype(dtype)) for name in "ab"}
    nodes = [
        node("Conv", ["x", "a"], ["c"], **pads), node("Relu", ["c"], ["r"]), node("Conv", ["r", "b"], ["d"], **pads),
        node("Add", ["d", "x"], ["y"]),
    ]  # fmt: skip
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    values = [helper.make_tensor_value_info(name, kind, x.shape) for name in "xy"]
    weights = [numpy_helper.from_array(array, name) for name, array in held.items()]
    graph = helper.make_graph(nodes, "network", values[:1], values[1:], weights)
    wide = [each.astype(np.float64) for each in (x, held["a"], held["b"])]
    made = convolved(np.maximum(convolved(wide[0], wide[1]), 0), wide[2]) + wide[0]
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)]), x, made


@pytest.mark.parametrize(
    ("dtype", "precision", "multiplied", "tolerance"),
    [
        ("float16", "fp32", "float16", 2**-9), ("float32", "tf32", "tfloat32", 2**-9),
        ("float32", "bf16", "bfloat16", 2**-6), ("bfloat16", "fp32", "bfloat16", 2**-6),
    ],
)
def test_convolutions_are_on_tensor_cores(dtype: str, precision: str, multiplied: str, tolerance: float) -> None:
    model, x, expected = network(dtype)
    module = fusion.compile(model, target="cuda -arch=sm_90", precision=precision)
    assert sources_of(module).count(f"multiply_{multiplied}(") > 0
    assert "multiply_floats" not in sources_of(module)
    (y,) = run_planned(module, x)
    np.testing.assert_allclose(y.astype(np.float64), expected, rtol=tolerance, atol=4 * tolerance)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("biased", [False, True])
def test_norms_are_in_the_weights_of_convolutions(dtype: str, biased: bool) -> None:
    """A reciprocal root of the variance was a kernel of its own in every call, and the product had its sums alone."""
    random, narrow = np.random.default_rng(2243), np.dtype(dtype)
    x = random.standard_normal((1, 16, 9, 9)).astype(narrow)
    held = {"w": random.standard_normal((24, 16, 3, 3)).astype(narrow) / 8} | {
        name: random.uniform(0.5, 2, 24).astype(narrow) for name in ("bias", "gamma", "beta", "mean", "variance")
    }
    taken = ["x", "w", "bias"] if biased else ["x", "w"]
    nodes = [
        helper.make_node("Conv", taken, ["c"], pads=[1, 1, 1, 1]), helper.make_node("Relu", ["n"], ["y"]),
        helper.make_node("BatchNormalization", ["c", "gamma", "beta", "mean", "variance"], ["n"]),
    ]  # fmt: skip
    kind = helper.np_dtype_to_tensor_dtype(narrow)
    values = [helper.make_tensor_value_info(name, kind, (1, n, 9, 9)) for name, n in (("x", 16), ("y", 24))]
    weights = [numpy_helper.from_array(array, name) for name, array in held.items()]
    graph = helper.make_graph([nodes[0], nodes[2], nodes[1]], "norm", values[:1], values[1:], weights)
    module = fusion.compile(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)]), target="cuda -arch=sm_80"
    )
    (form,) = module.specializations
    assert sorted({kernel.template for kernel in form.kernels.values()}) == ["product", "transposes"]
    wide = {name: array.astype(np.float64).reshape(-1, 1, 1) for name, array in held.items() if name != "w"}
    sums = convolved(x.astype(np.float64), held["w"]) + (wide["bias"] if biased else 0)
    normed = (sums - wide["mean"]) / np.sqrt(wide["variance"] + 1e-5) * wide["gamma"] + wide["beta"]
    (y,) = run_planned(module, x)
    unit = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
    np.testing.assert_allclose(y.astype(np.float64), np.maximum(normed, 0), rtol=0, atol=unit * np.abs(normed).max())


@pytest.mark.parametrize("exact", [True, False])
def test_a_bias_is_narrowed_once_where_it_has_the_numbers(exact: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was cast to see whether it may be narrow, and again to be so."""
    seen: list[object] = []
    monkeypatch.setattr(narrow_shift, "as_numpy", lambda value: seen.append(value) or as_numpy(value))
    bias = np.array([1, 2, 3, 4] if exact else [1, 2, 3, 1.0001], np.float32)
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((4, 4), "float16"))
    with builder.function("main", [x]):
        with builder.dataflow():
            sums = builder.emit(relax.op.matmul(x, x, out_dtype="float32"))
            shifted = builder.emit(relax.op.add(sums, relax.const(bias)))
            made = builder.emit_output(relax.op.astype(shifted, "float16"))
        builder.emit_func_output(made)
    module = fusion.compile(builder.get(), target="cuda -arch=sm_80")
    assert len(seen) == 1
    (form,) = module.specializations
    assert form.code is not None
    assert {str(weight.dtype) for weight in form.code.weights} == {"float16" if exact else "float32"}
    assert ("float16 lacks numbers of its constant" in str(module.explain())) is not exact
