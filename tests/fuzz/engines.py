"""Runs a model by fusion, by ONNX Runtime and by onnx's reference, and says what came of it."""

from __future__ import annotations

import tempfile
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

import fusion
from bench.reference.evaluate import NoReferenceError, evaluate
from fusion.errors import FusionError, InternalError
from tests import internal_errors
from tests.fuzz.case import Values
from tests.fuzz.draw import element_type, np_dtype

onnxruntime.set_default_logger_severity(4)


@dataclass(frozen=True)
class Ran:
    """What an engine did.

    Attributes:
        status: "ran"; "refused", by an error of its own; "no kernel"; "internal", F901, or a defect that it compiled
            around; "untyped", any other exception.
        values: The outputs by name.
        message: The error's.
    """

    status: str
    values: Values = field(default_factory=dict)
    message: str = ""


def run_fusion(model: onnx.ModelProto, inputs: Values, threads: int = 1) -> Ran:
    """Compile and run `model`."""
    try:
        with warnings.catch_warnings(), internal_errors.collect() as defects:
            warnings.simplefilter("ignore")
            results = fusion.compile(model, threads=threads, wait=True).run(inputs)
        return Ran("internal", message=defects[0]) if defects else Ran("ran", dict(results))
    except InternalError as error:
        return Ran("internal", message=f"{error.code}: {error.what}: {error.why}")
    except FusionError as error:
        return Ran("refused", message=f"{error.code}: {error.what} ({error.why})")
    except Exception as error:  # what is not a FusionError is what is looked for
        return Ran("untyped", message=f"{type(error).__name__}: {error}")


def run_onnxruntime(model: onnx.ModelProto | Path, inputs: Values, optimized: bool = True) -> Ran:
    """Run `model`, or the one in a file, by ONNX Runtime on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        source = str(model) if isinstance(model, Path) else model.SerializeToString()
        session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        foreign = {out.name: out.type for out in session.get_outputs() if out.type in _FOREIGN}
        if foreign and isinstance(model, onnx.ModelProto):
            return _widened(model, inputs, foreign, optimized)
        wanted = {value.name for value in session.get_inputs()}
        feeds = {name: value for name, value in inputs.items() if name in wanted}
        if not any(_is_foreign(value) for value in feeds.values()):
            return Ran("ran", dict(zip(names, session.run(None, feeds), strict=True)))
        made = session.run_with_ort_values(names, {name: _as_ort(value) for name, value in feeds.items()})
        return Ran("ran", {name: _as_array(value) for name, value in zip(names, made, strict=True)})
    except ort_errors.NotImplemented as error:
        return Ran("no kernel", message=_short(error))
    except Exception as error:  # ONNX Runtime's errors have no base of their own
        lacks = isinstance(error, TypeError) or any(words in str(error) for words in _LACKS)
        return Ran("no kernel" if lacks else "refused", message=_short(error))


_LACKS = (
    "ValidateOpsetForDomain",
    "is not a registered function/op",
    "does not support double yet",
    "is not supported with",
    "Data() const [with T",
    "InsertedPrecisionFreeCast",
)
"""Words of errors that mean that ONNX Runtime has no such operator, whatever their class."""


_FOREIGN = {
    "tensor(bfloat16)": "bfloat16", "tensor(float8e4m3fn)": "float8_e4m3fn",
    "tensor(float8e4m3fnuz)": "float8_e4m3fnuz", "tensor(float8e5m2)": "float8_e5m2",
    "tensor(float8e5m2fnuz)": "float8_e5m2fnuz", "tensor(float8e8m0)": "float8_e8m0fnu",
    "tensor(float4e2m1)": "float4_e2m1fn",
    "tensor(int4)": "int4", "tensor(uint4)": "uint4", "tensor(int2)": "int2", "tensor(uint2)": "uint2",
}  # fmt: skip
"""Types of which ONNX Runtime returns no arrays, by its name of them."""


def _widened(model: onnx.ModelProto, inputs: Values, foreign: dict[str, str], optimized: bool) -> Ran:
    """Run `model` with the `foreign` outputs cast to float32, which holds all their numbers, and cast them back."""
    wider = onnx.ModelProto()
    wider.CopyFrom(model)
    for output in wider.graph.output:
        if output.name in foreign:
            wider.graph.node.append(onnx.helper.make_node("Cast", [output.name], [f"{output.name}_wide"], to=1))
            output.CopyFrom(onnx.ValueInfoProto(name=f"{output.name}_wide"))
    ran = run_onnxruntime(wider, inputs, optimized)
    values = dict(ran.values)
    for name, kind in foreign.items() if ran.status == "ran" else ():
        with np.errstate(all="ignore"):
            values[name] = values.pop(f"{name}_wide").astype(np_dtype(_FOREIGN[kind]))
    return Ran(ran.status, values, ran.message)


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"


def _is_foreign(value: Any) -> bool:
    return isinstance(value, np.ndarray) and hasattr(ml_dtypes, value.dtype.name)


def _as_ort(value: Any) -> onnxruntime.OrtValue:
    if _is_foreign(value):
        packed = value.dtype.name in ("int4", "uint4", "int2", "uint2", "float4_e2m1fn")
        if packed:
            raise TypeError("ONNX Runtime takes no packed arrays from Python")
        carrier = value.view(np.uint16 if value.dtype.itemsize == 2 else np.uint8)
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(carrier, element_type(value.dtype))
    if isinstance(value, list):
        raise TypeError("ONNX Runtime takes no sequences beside such arrays")
    if value.dtype.kind in "OUS":
        raise TypeError("ONNX Runtime takes no texts beside such arrays")
    return onnxruntime.OrtValue.ortvalue_from_numpy(value)


def _as_array(value: Any) -> np.ndarray:
    if not value.is_tensor():
        raise TypeError("ONNX Runtime returns no sequences of what it took such arrays for")
    return np.asarray(value.numpy())


def run_reference(model: onnx.ModelProto, inputs: Values) -> Ran:
    """Run `model` by onnx's reference evaluator."""
    from onnx.reference import ReferenceEvaluator

    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            results = ReferenceEvaluator(model).run(None, inputs)
        return Ran("ran", dict(zip((output.name for output in model.graph.output), results, strict=True)))
    except Exception as error:  # the evaluator raises whatever NumPy raises
        return Ran("refused", message=_short(error))


_FLOATS = {
    onnx.TensorProto.DOUBLE: np.dtype("float64"),
    onnx.TensorProto.FLOAT16: np.dtype("float16"),
    onnx.TensorProto.BFLOAT16: np.dtype(ml_dtypes.bfloat16),
}
"""Types that ONNX Runtime has fewer kernels for than for float32."""

_OF_TYPES = frozenset({"to", "dtype", "output_dtype", "softmax_precision", "value", "body", "then_branch"})
"""Attributes that name a type, or hold a tensor or a graph."""


def run_in_float32(model: onnx.ModelProto, inputs: Values) -> Ran:
    """Run `model` by ONNX Runtime with its floats as float32, and its results rounded back."""
    names = {attribute.name for node in model.graph.node for attribute in node.attribute}
    if names & _OF_TYPES or any(node.op_type == "BitCast" for node in model.graph.node):
        return Ran("no kernel", message="it names types")
    dtypes = {value.name: _FLOATS.get(value.type.tensor_type.elem_type) for value in model.graph.output}
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    for tensor in wide.graph.initializer:
        if tensor.data_type in _FLOATS:
            array = onnx.numpy_helper.to_array(tensor).astype(np.float32)
            tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    wide.graph.ClearField("value_info")
    for value in (*wide.graph.input, *wide.graph.output):
        if value.type.tensor_type.elem_type in _FLOATS:
            value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    feeds = {name: _as_float32(value) for name, value in inputs.items()}
    with np.errstate(all="ignore"):
        ran = run_onnxruntime(wide, feeds)
        values = {name: value.astype(dtypes[name]) if dtypes[name] else value for name, value in ran.values.items()}
    return Ran(ran.status, values, ran.message)


def _as_float32(value: Any) -> Any:
    floating = isinstance(value, np.ndarray) and value.dtype in _FLOATS.values()
    return value.astype(np.float32) if floating else value


def run_float64(model: onnx.ModelProto, inputs: Values) -> Ran:
    """Run `model` with every float32 as float64."""
    if not all(isinstance(value, np.ndarray) for value in inputs.values()):
        return Ran("refused", message="it reads sequences")
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        path = Path(folder) / "model.onnx"
        try:
            onnx.save(model, path)
            return Ran("ran", dict(evaluate(path, inputs)))
        except (NoReferenceError, ValueError, TypeError, KeyError, AssertionError) as error:
            return Ran("refused", message=_short(error))
