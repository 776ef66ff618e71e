"""GroupQueryAttention, which decoders of onnxruntime-genai have: prompts, steps and caches, beside ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

import fusion
from fusion.errors import ExecutionError
from tests.frontends.against_onnxruntime import check, onnxruntime_runs

RNG = np.random.default_rng(0)
HEADS, DEPTH, PLACES = 4, 32, 64
KINDS = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16, "int32": TensorProto.INT32,
         "int64": TensorProto.INT64}  # fmt: skip


def values(*shape: int, dtype: str = "float32") -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def lengths(total: str = "mask") -> list[NodeProto]:
    """Return how an exporter tells the operator how many keys there are: by a mask of all, [B, keys]."""
    nodes = [
        helper.make_node("ReduceSum", ["mask", "one"], ["count"], keepdims=0),
        helper.make_node("Sub", ["count", "one"], ["last"]),
        helper.make_node("Cast", ["last"], ["seqlens"], to=TensorProto.INT32),
        helper.make_node("Shape", ["mask"], ["sizes"]),
        helper.make_node("Gather", ["sizes", "axis"], ["keys"]),
        helper.make_node("Cast", ["keys"], ["total"], to=TensorProto.INT32),
    ]
    return nodes if total == "mask" else nodes[:3]


def attention(name: str, more: Sequence[str] = (), groups: int = 2, x: str = "", **attributes: Any) -> NodeProto:
    """Return a node whose results are called `name` and so on, of queries, keys and values in `x` where that is given;
    `more` are the operands behind the number of keys."""
    given = [x, "", ""] if x else ["q", f"k{groups}", f"v{groups}"]
    cache = ["", ""] if attributes.pop("new", False) else [f"pk{groups}", f"pv{groups}"]
    if attributes.get("do_rotary"):
        more = ["cos", "sin", *more]
    return helper.make_node(
        "GroupQueryAttention", [*given, *cache, "seqlens", "total", *more], [name, f"{name}_k", f"{name}_v"],
        domain="com.microsoft", num_heads=HEADS, kv_num_heads=groups, **attributes,
    )  # fmt: skip


def operands(
    *, tokens: int, past: int, counts: Sequence[int], keys: int, dtype: str = "float32"
) -> dict[str, np.ndarray]:
    """Return inputs of a batch whose rows have `counts` keys, of at most `keys`, in a cache with `past` places."""
    batch, mask = len(counts), np.arange(keys) < np.array(counts)[:, None]
    found = {"mask": mask.astype("int64"), "q": values(batch, tokens, HEADS * DEPTH, dtype=dtype)}
    for groups in (1, 2, 4):
        for name in "kv":
            found[f"{name}{groups}"] = values(batch, tokens, groups * DEPTH, dtype=dtype)
            found[f"p{name}{groups}"] = values(batch, groups, past, DEPTH, dtype=dtype)
    found["qkv"] = values(batch, tokens, (HEADS + 4) * DEPTH, dtype=dtype)
    return found | {"bias": values(batch, 1, tokens, keys, dtype=dtype), "sinks": values(HEADS, dtype=dtype)}


def model_of(
    nodes: Sequence[NodeProto], inputs: Mapping[str, Sequence[Any]], dtypes: Mapping[str, str], angles: int = DEPTH // 2
) -> onnx.ModelProto:
    """Return a model of the nodes that reads those of the `inputs` which they read."""
    read = {name for node in nodes for name in node.input}
    read_inputs = {name: dims for name, dims in inputs.items() if name in read}
    given = [helper.make_tensor_value_info(name, KINDS[dtypes[name]], dims) for name, dims in read_inputs.items()]
    made = [onnx.ValueInfoProto(name=name) for node in nodes if node.domain for name in node.output]
    turned = np.random.default_rng(1).uniform(-3, 3, (PLACES, angles))
    weights = {"one": np.array([1]), "axis": np.array(1), "cos": np.cos(turned), "sin": np.sin(turned)}
    weights |= {name: weights[name].astype(dtypes["q"]) for name in ("cos", "sin")}
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items() if name in read]
    graph = helper.make_graph(list(nodes), "cached", given, made, tensors)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def agree(
    nodes: Sequence[NodeProto], inputs: Mapping[str, np.ndarray], tolerance: float = 1e-5, **more: Any
) -> fusion.CompiledModule:
    """Check all results of the attentions, none of which is for ONNX Runtime."""
    return checked([*lengths(), *nodes], inputs, (), tolerance, **more)


def checked(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, np.ndarray],
    fallbacks: Sequence[str],
    tolerance: float,
    **more: Any,
) -> fusion.CompiledModule:
    """Return the model of the nodes, compared with ONNX Runtime."""
    shapes, dtypes = ({name: get(x) for name, x in inputs.items()} for get in (np.shape, lambda x: str(x.dtype)))
    model = model_of(nodes, shapes, dtypes, **more)
    given = {value.name: inputs[value.name] for value in model.graph.input}
    return check(model, given, fallbacks=fallbacks, tolerance=tolerance)


def test_steps_behind_caches_of_several_lengths() -> None:
    agree(
        [
            attention("plain", groups=1),
            attention("packed", x="qkv", do_rotary=1),
            attention("turned", do_rotary=1, rotary_interleaved=1, scale=0.4, softcap=2.0),
            attention("window", ["", "", "", "bias"], groups=4, local_window_size=3),
            attention("sunk", ["", "", "", "", "sinks"]),
        ],
        operands(tokens=1, past=6, counts=(7, 3, 5), keys=7),
    )


def test_prompts_with_padding_behind() -> None:
    agree(
        [
            attention("first", new=True, do_rotary=1, groups=4),
            attention("empty", do_rotary=1, local_window_size=3, softcap=50.0),
            attention("smooth", smooth_softmax=1, groups=1),
        ],
        operands(tokens=5, past=0, counts=(5, 2, 4), keys=5),
    )


@pytest.mark.parametrize("keys", [9, 16])
def test_more_of_a_prompt_in_a_cache_with_places_for_more(keys: int) -> None:
    """What lies behind the keys in the cache comes back as zeros."""
    inputs = operands(tokens=3, past=16, counts=(9,), keys=keys)
    agree([attention("turned", do_rotary=1), attention("biased", ["", "", "", "bias"])], inputs, angles=DEPTH // 4)


def test_places_that_are_given() -> None:
    """Of those of a prompt ONNX Runtime reads the first alone."""
    for tokens, past in ((3, 0), (1, 6)):
        inputs = operands(tokens=tokens, past=past, counts=(tokens + past,) * 2, keys=tokens + past)
        inputs["at"] = np.array([[4, 9, 2], [7, 1, 3]])[:, :tokens]
        agree([attention("y", ["at"], do_rotary=1)], inputs)


def test_half_precision_is_computed_in_float32() -> None:
    inputs = operands(tokens=1, past=6, counts=(7, 3), keys=7, dtype="float16")
    agree([attention("y", do_rotary=1)], inputs, tolerance=2e-3)


def test_a_number_of_keys_that_the_run_alone_knows_is_for_onnx_runtime() -> None:
    inputs = operands(tokens=1, past=6, counts=(7,), keys=7) | {"total": np.array([7], np.int32)}
    module = checked([*lengths("given"), attention("y")], inputs, ["GroupQueryAttention"], 1e-5)
    assert "total_sequence_length follows from no shape" in module.explain()


def test_one_form_for_prompts_and_steps() -> None:
    """A mask that is as long as the cache and the new tokens, which no name says, and rows without any key."""
    batch, groups = "batch", {"k2": 2, "v2": 2, "q": HEADS}
    shapes: dict[str, Sequence[Any]] = {name: [batch, "tokens", count * DEPTH] for name, count in groups.items()}
    shapes |= {"mask": [batch, "total"], "pk2": [batch, 2, "past", DEPTH], "pv2": [batch, 2, "past", DEPTH]}
    dtypes = {name: "int64" if name == "mask" else "float32" for name in shapes}
    model = model_of([*lengths(), attention("y", do_rotary=1)], shapes, dtypes)
    module = fusion.compile(model, threads=1, wait=True)
    for tokens, past, counts in ((5, 0, (5,)), (1, 5, (6,)), (3, 6, (9,)), (4, 0, (1, 4, 3)), (1, 8, (9, 2))):
        inputs = operands(tokens=tokens, past=past, counts=counts, keys=tokens + past)
        inputs = {name: inputs[name] for name in shapes}
        for ours, theirs in zip(module(*inputs.values()), onnxruntime_runs(model, inputs), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    assert [form.opened is not None for form in module.specializations] == [True], module.explain()
    with pytest.raises(ExecutionError, match="no place for its keys"):
        module(*(inputs | {"mask": inputs["mask"] * [[0], [1]]}).values())
    long = operands(tokens=1, past=PLACES, counts=(PLACES + 1,), keys=PLACES + 1)
    with pytest.raises(ExecutionError, match="an index is outside its axis"):
        module(*(long[name] for name in shapes))
