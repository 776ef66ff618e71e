"""Judges what fusion made of a case by what ONNX Runtime made of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import onnx

from bench.gate import error_of
from tests.fuzz.case import Case, Outcome, Values, describe
from tests.fuzz.draw import np_dtype, type_proto
from tests.fuzz.engines import Ran, run_float64, run_fusion, run_in_float32, run_onnxruntime, run_reference

FINE = ("same", "both refuse", "no oracle", "oracle failed")
"""ProfitabilityCache that are no findings: the last two where nothing says what is right."""

FINDINGS = ("differs", "refused", "accepted", "untyped", "internal", "signal", "hang", "memory", "broken")
"""A wrong result; a FusionError where ONNX Runtime runs; a result where it refuses; an exception that is no
FusionError; F901; the end of the process; no answer for 30 s; more memory than a case may take; an
exception of the generator or the judge themselves."""

Stage = Callable[[str], None]


def judge(case: Case, stage: Stage) -> Outcome:
    """Run `case` by every engine it takes; `stage` is told which is next, so that a crash has an owner."""
    model = case.proto()
    stage("oracle")
    expected = run_onnxruntime(model, case.inputs)
    stage("fusion")
    ours = run_fusion(model, case.inputs, case.threads)
    stage("compare")
    verdict, detail = _judged(case, model, ours, expected)
    where = describe(model, case.inputs)
    return Outcome(case.kind, case.seed, verdict, detail, where, case.note, None if verdict in FINE else case)


def judge_alone(case: Case, stage: Stage) -> Outcome:
    """Run `case` by fusion alone: where the oracle ends the process."""
    stage("fusion")
    ours = run_fusion(case.proto(), case.inputs, case.threads)
    bad = ours.status in ("untyped", "internal")
    where = describe(case.proto(), case.inputs)
    verdict = ours.status if bad else "oracle failed"
    return Outcome(case.kind, case.seed, verdict, ours.message, where, case.note, case if bad else None)


def _judged(case: Case, model: onnx.ModelProto, ours: Ran, expected: Ran) -> tuple[str, str]:
    if ours.status in ("untyped", "internal"):
        return ours.status, f"{ours.message} [expected: {expected.status} {expected.message[:100]}]"
    if expected.status != "ran" and ours.status == "refused":
        return "both refuse", ours.message
    if expected.status == "no kernel" or (expected.status == "refused" and _is_strict(expected, bool(case.note))):
        return _by_reference(case, model, ours, expected)
    if expected.status == "refused":
        return "accepted", expected.message
    if ours.status == "refused":
        return "refused", ours.message
    found = difference(ours.values, expected.values, by_chance=case.random)
    if found and not case.random and is_excused(model, case.inputs, ours.values, expected.values):
        return "same", ""
    return ("differs", found) if found else ("same", "")


def _is_strict(expected: Ran, spoiled: bool) -> bool:
    """Whether ONNX Runtime refused, as it was loaded, what onnx allows: a valid model, or nodes of its own making."""
    words = ("Type Error", "INVALID_GRAPH", "during initialization")
    return _is_of_its_making(expected) or (not spoiled and any(word in expected.message for word in words))


def _is_of_its_making(expected: Ran) -> bool:
    """Whether ONNX Runtime refused nodes that it put in the place of another, which it then has no kernel for."""
    return " in node ()" in expected.message


def _by_reference(case: Case, model: onnx.ModelProto, ours: Ran, expected: Ran) -> tuple[str, str]:
    """Judge what ONNX Runtime cannot run by what it makes of that in float32, else by onnx's reference."""
    opset = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 1)
    known = run_in_float32(model, case.inputs)
    if known.status != "ran" and not any(opset < _MISTAKEN.get(node.op_type, 0) for node in model.graph.node):
        known = run_reference(model, case.inputs)
    if known.status != "ran" or (case.note and expected.status == "no kernel"):
        lacks = expected.status == "no kernel" or _is_of_its_making(expected)
        return ("no oracle" if lacks else "accepted"), expected.message
    found = difference(ours.values, known.values, by_chance=case.random)
    if not found:
        return "same", ""
    if found.startswith(_LOOSE) or _beyond_float64(case.inputs | known.values) or _is_nothing(known.values):
        return "no oracle", found
    exact = run_float64(model, case.inputs)
    if exact.status == "ran" and _as_near(ours.values, known.values, exact.values):
        return "same", ""
    return (
        ("differs", f"{found} of onnx's reference")
        if expected.status == "no kernel"
        else ("accepted", expected.message)
    )


_MISTAKEN = {
    **dict.fromkeys(("GlobalMaxPool", "GridSample", "RoiAlign", "NonZero", "QLinearMatMul", "ReduceL2"), 1000),
    **dict.fromkeys(("LSTM", "GRU", "RNN", "ReduceMean", "Unique"), 1000),
    **dict.fromkeys(("Hardmax", "LogSoftmax", "Softmax"), 13),
    **dict.fromkeys(
        ("Gemm", "Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor"), 7
    ),
}
"""Operators, and the set from which on the reference judges them: it adds an axis to images of three; it rounds pixels
of integers at each step; its samples lie elsewhere; a scalar has no places; it multiplies scales in bfloat16; it
squares and adds integers in their own type; it cuts off no gates; it takes what it does not sort along the first axis;
it does not know that softmax was over all axes from one on, nor how the first sets broadcast."""


def _is_nothing(values: Values) -> bool:
    """Whether there is no element among `values`: windows that do not fit leave none by the reference's rounding."""
    return all(isinstance(value, np.ndarray) and not value.size for value in values.values())


_LOOSE = ("dtype", "NaN or infinity")
"""Differences of which the reference, which computes in whatever type NumPy promotes to, is no judge."""


def _beyond_float64(values: Values) -> bool:
    """Whether there are integers among `values` that float64, which the reference multiplies them in, has not, and
    whose sums leave their own type."""
    arrays = [value for value in values.values() if isinstance(value, np.ndarray) and value.dtype.kind in "iu"]
    return any(bool((np.abs(array.astype(np.float64)) >= 2.0**53).any()) for array in arrays)


def difference(ours: Values, expected: Values, by_chance: bool = False) -> str:
    """Return what differs, or ""; of results `by_chance` only types and shapes are compared."""
    for name, wanted in expected.items():
        if name not in ours:
            return f"no output {name}"
        found = _difference_of_one(ours[name], wanted, by_chance)
        if found:
            return found
    return ""


def _difference_of_one(ours: Any, wanted: Any, by_chance: bool) -> str:
    if isinstance(wanted, list):
        if not isinstance(ours, list) or len(ours) != len(wanted):
            return "another sequence"
        return next(filter(None, (_difference_of_one(a, b, by_chance) for a, b in zip(ours, wanted, strict=True))), "")
    if wanted is None or ours is None or isinstance(wanted, dict):
        return "" if str(ours) == str(wanted) else "one of the values is empty"
    ours, wanted = np.asarray(ours), np.asarray(wanted)
    if ours.dtype != wanted.dtype and not (ours.dtype.kind in "OUS" and wanted.dtype.kind in "OUS"):
        return f"dtype {ours.dtype} instead of {wanted.dtype}"
    if ours.shape != wanted.shape:
        return f"shape {ours.shape} instead of {wanted.shape}"
    return "" if by_chance else _difference_of_values(ours, wanted)


def _difference_of_values(ours: np.ndarray, wanted: np.ndarray) -> str:
    if wanted.dtype.kind in "OUS":
        return "" if ours.astype(str).tolist() == wanted.astype(str).tolist() else f"strings {ours.ravel()[:3]}"
    error = _error(ours, wanted)
    if error <= slack(wanted.dtype):
        return ""
    wrong = _wrong(ours, wanted)
    places = f"{int(wrong.sum())} of {wrong.size}"
    first = f"{ours[wrong].ravel()[:3]} for {wanted[wrong].ravel()[:3]}".replace("\n", " ")
    return f"{'NaN or infinity in other places' if np.isinf(error) else f'error {error:.1e}'}: {places}, {first}"


def _wrong(ours: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return which elements differ; of integers any that are not equal, as float64 has not all of 64 bits."""
    if wanted.dtype.kind in "iu":
        return ours != wanted
    return ~np.isclose(_wide(ours), _wide(wanted), rtol=slack(wanted.dtype), atol=0, equal_nan=True)


def _wide(array: np.ndarray) -> np.ndarray:
    return array if array.dtype.kind == "c" else array.astype(np.float64)


def _error(ours: np.ndarray, wanted: np.ndarray) -> float:
    with np.errstate(all="ignore"):
        floating = wanted.dtype.kind == "f" or hasattr(ml_dtypes, wanted.dtype.name)
        return error_of(_wide(ours), _wide(wanted)) if floating else error_of(ours, wanted)


def slack(dtype: np.dtype[Any]) -> float:
    """Return the share of the scale that is accepted as an error: 1e-4, or four times a type's resolution."""
    if dtype.kind == "f" or (hasattr(ml_dtypes, dtype.name) and "int" not in dtype.name):
        return max(1e-4, 4 * float(ml_dtypes.finfo(dtype).eps))
    return 1e-4 if dtype.kind == "c" else 0.0


def is_excused(model: onnx.ModelProto, inputs: Values, ours: Values, expected: Values) -> bool:
    """Whether the difference is ONNX Runtime's own: from itself, from float64, under the smallest change, of sums that
    no order of adding keeps in their type, or of fractions that are nothing but rounding."""
    plain = run_onnxruntime(model, inputs, optimized=False)
    if plain.status == "ran" and not difference(ours, plain.values):
        return True
    exact = run_float64(model, inputs)
    if exact.status == "ran" and _as_near(ours, expected, exact.values):
        return True
    rules = (_is_unsteady, _is_of_overflows, _is_of_fractions)
    return any(rule(model, inputs, ours, expected) for rule in rules)


def _as_near(ours: Values, expected: Values, exact: Values) -> bool:
    """Whether every output is at most twice as far from float64 as ONNX Runtime's, and the slack."""
    for name, reference in exact.items():
        if isinstance(expected[name], list) or expected[name] is None or np.asarray(reference).dtype.kind not in "f":
            if _difference_of_one(ours[name], expected[name], by_chance=False):
                return False
            continue
        if not _error(ours[name], reference) <= 2 * _error(expected[name], reference) + slack(expected[name].dtype):
            return False
    return True


def _is_unsteady(model: onnx.ModelProto, inputs: Values, ours: Values, expected: Values) -> bool:
    """Whether changing the floats that nodes read by their last bits, or by their distance to float64, changes ONNX
    Runtime's result as much."""
    rng = np.random.default_rng(0)
    spread: dict[str, float] = {}
    changes = [partial(_shaken, rng=rng, steps=steps) for steps in ((0,), *[_STEPS] * 15)]
    for change in (*changes, partial(_rounded, share=0), partial(_rounded, share=-1)):
        noisy = _run_changed(model, inputs, change)
        if noisy is None:
            return False
        for name, value in noisy[0].items():
            if isinstance(value, np.ndarray) and value.dtype.kind not in "OUS":
                spread[name] = max(spread.get(name, 0.0), _error(value, expected[name]))
    # What steps at a number steps for all elements that lie there, of which the tries find a few.
    return all(
        not _difference_of_one(ours[name], value, by_chance=False)
        or _error(np.asarray(ours[name]), np.asarray(value)) <= 4 * spread.get(name, 0.0)
        for name, value in expected.items()
    )


_STEPS = (-16, -4, -1, 1, 4, 16)
"""By how many last bits a float is changed."""

Change = Callable[[onnx.ModelProto, Values, Values], Values]
"""What other nodes read in place of the results of a model of one node, which reads and makes the values given."""


def _run_changed(model: onnx.ModelProto, inputs: Values, change: Change) -> tuple[Values, Values] | None:
    """Return the outputs of ONNX Runtime, node by node, which read each other's floats as `change` makes them; and
    these outputs as `change` makes them.

    What the caller gives stays as it is: a tie in it is decided by a rule, one between computed numbers by rounding.
    """
    values: Values = {**{t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}, **inputs}
    results = dict(values)
    try:
        for node in model.graph.node:
            read = {name: values[name] for name in node.input if name}
            single = alone(node, model, values)
            made = run_onnxruntime(single, read)
            if made.status != "ran":
                return None
            results.update(made.values)
            values.update(change(single, read, made.values))
        names = [output.name for output in model.graph.output]
        return {name: results[name] for name in names}, {name: values[name] for name in names}
    except (KeyError, TypeError, ValueError):
        return None


def tensors(model: onnx.ModelProto, inputs: Values) -> Values:
    """Return what ONNX Runtime computes for every tensor of `model`, constants and inputs included."""
    values: Values = {**{t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}, **inputs}
    for node in model.graph.node:
        names = [name for name in node.input if name]
        if all(name in values for name in names):
            values.update(run_onnxruntime(alone(node, model, values), {name: values[name] for name in names}).values)
    return values


def alone(node: onnx.NodeProto, model: onnx.ModelProto, values: Values) -> onnx.ModelProto:
    """Return a model of `node` alone, which takes `values`."""
    infos = []
    for name in dict.fromkeys(filter(None, node.input)):
        shape = values[name].shape if isinstance(values[name], np.ndarray) else None
        infos.append(onnx.helper.make_value_info(name, type_proto(values[name], shape=shape)))
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = onnx.helper.make_graph([node], "alone", infos, outputs)
    return onnx.helper.make_model(graph, opset_imports=list(model.opset_import), ir_version=max(model.ir_version, 4))


def _shaken(
    node: onnx.ModelProto, read: Values, made: Values, rng: np.random.Generator, steps: Sequence[int]
) -> Values:
    """Change each float by one of `steps`: by 0 they are still rounded to float16, where the whole model keeps them in
    float32."""
    return {name: _stepped(value, rng, steps) if _is_float(value) else value for name, value in made.items()}


def _stepped(value: np.ndarray, rng: np.random.Generator, steps: Sequence[int]) -> np.ndarray:
    step = float(ml_dtypes.finfo(value.dtype).eps) * rng.choice(steps, value.shape)
    with np.errstate(all="ignore"):
        wide = value.astype(np.float64)
        # What is left of numbers that cancel each other has no last bits of its own.
        scale = np.abs(wide[np.isfinite(wide)]).max(initial=0)
        near_zero = np.abs(wide) <= float(ml_dtypes.finfo(value.dtype).eps) * scale
        return _where_finite(np.where(near_zero, wide + step * scale, wide * (1 + step)), value)


def _rounded(node: onnx.ModelProto, read: Values, made: Values, share: float) -> Values:
    """Change each float to what float64 makes of it and a `share` of its own error, -1 to round to the other side: it
    may be nothing but rounding, of which no bit is right."""
    exact = run_float64(node, read).values
    known = {name for name, value in made.items() if _is_float(value) and np.shape(exact.get(name)) == value.shape}
    with np.errstate(all="ignore"):
        return {
            name: _where_finite(exact[name] + share * (value - exact[name]), value) if name in known else value
            for name, value in made.items()
        }


_SUMS = frozenset({"Conv", "ConvTranspose", "CumSum", "Einsum", "Gemm", "MatMul", "ReduceSum", "Sum"})
"""Operators that add numbers, or products of them, and do nothing else."""


def _is_of_overflows(model: onnx.ModelProto, inputs: Values, ours: Values, expected: Values) -> bool:
    """Whether nothing differs but what sums make that leave their type on the way, in one order of adding or another:
    where they do, fusion may have NaN or an infinity, and no other number."""
    ran = _run_changed(model, inputs, _marked)
    if ran is None:
        return False
    for name, wanted in expected.items():
        if not _is_float(wanted) or np.shape(ours[name]) != wanted.shape:
            marked = np.False_
        else:
            marked = ~np.isfinite(_wide(np.asarray(ours[name]))) & np.isnan(_wide(ran[1][name]))
        if _difference_of_one(np.where(marked, wanted, ours[name]) if marked.any() else ours[name], wanted, False):
            return False
    return True


def _marked(node: onnx.ModelProto, read: Values, made: Values) -> Values:
    """Put NaN where the sum of all absolute values is more than half of the largest number."""
    (only,) = node.graph.node
    if only.op_type not in _SUMS:
        return made
    of_absolutes = onnx.ModelProto()
    of_absolutes.CopyFrom(node)
    for attribute in of_absolutes.graph.node[0].attribute:
        if attribute.type == onnx.AttributeProto.FLOAT:
            attribute.f = abs(attribute.f)
    sizes = run_onnxruntime(of_absolutes, {name: _absolute(value) for name, value in read.items()}).values
    fits = {name: _wide(size) <= float(ml_dtypes.finfo(size.dtype).max) / 2 for name, size in sizes.items()}
    return {
        name: np.where(fits[name], value, np.nan).astype(value.dtype) if _is_float(value) and name in fits else value
        for name, value in made.items()
    }


def _absolute(value: Any) -> Any:
    return np.where(np.isfinite(_wide(value)), np.abs(value), value.dtype.type(0)) if _is_float(value) else value


_INTERPOLATED = frozenset({"Resize", "Upsample"})


def _is_of_fractions(model: onnx.ModelProto, inputs: Values, ours: Values, expected: Values) -> bool:
    """Whether nothing differs but interpolated integers of which the fraction is cut off, by one, and that are whole
    but for rounding."""
    ran = _run_changed(model, inputs, _uncut)
    if ran is None:
        return False
    for name, wanted in expected.items():
        wide, made = ran[1][name], ours[name]
        if _is_float(wide) and not _is_float(wanted) and np.shape(made) == wanted.shape:
            whole = np.rint(_wide(wide))
            near = np.abs(_wide(wide) - whole) <= slack(wide.dtype) * np.maximum(1, np.abs(whole))
            cut = whole - np.sign(whole)
            either = [(_wide(value) == whole) | (_wide(value) == cut) for value in (wanted, np.asarray(made))]
            made = np.where(near & either[0] & either[1], wanted, made)
        if _difference_of_one(made, wanted, False):
            return False
    return True


def _uncut(node: onnx.ModelProto, read: Values, made: Values) -> Values:
    """Return what a node interpolates of integers as float32."""
    (only,) = node.graph.node
    if only.op_type not in _INTERPOLATED or read[only.input[0]].dtype.kind not in "iu":
        return made
    first = only.input[0]
    wide = onnx.ModelProto()
    wide.CopyFrom(node)
    wide.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    return made | run_onnxruntime(wide, {**read, first: read[first].astype(np.float32)}).values


def _where_finite(changed: np.ndarray, value: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        narrow = changed.astype(value.dtype)
    return np.where(np.isfinite(narrow.astype(np.float64)), narrow, value).astype(value.dtype)


def _is_float(value: Any) -> bool:
    return isinstance(value, np.ndarray) and (value.dtype.kind == "f" or value.dtype == np_dtype("bfloat16"))
