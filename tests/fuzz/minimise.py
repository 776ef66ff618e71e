"""Makes a case smaller as long as it goes wrong in the same way: fewer nodes, smaller shapes, simpler numbers."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.fuzz.case import Case, Outcome, Values
from tests.fuzz.draw import element_type, type_proto
from tests.fuzz.verdicts import alone

Try = Callable[[Case], Outcome]
_SECONDS = 15.0
"""What the minimising of one finding may take: most are small after a second."""


def minimise(outcome: Outcome, attempt: Try, values: Callable[[Case], Values], seconds: float = _SECONDS) -> Outcome:
    """Return the outcome of the smallest case found that goes wrong as `outcome` does.

    Args:
        attempt: Tries a case.
        values: Returns what ONNX Runtime computes for every tensor of a case.
    """
    assert outcome.case is not None
    deadline, best = time.monotonic() + seconds, outcome
    smaller = True
    while smaller and time.monotonic() < deadline:
        smaller = False
        for candidate in _candidates(best.case, values):
            if time.monotonic() > deadline:
                break
            found = attempt(candidate)
            if found.case is not None and _alike(found, outcome):
                best, smaller = found, True
                break
    return best


def _alike(found: Outcome, wanted: Outcome) -> bool:
    """Whether two outcomes are one finding: the same verdict and, of errors, the same words."""
    if found.verdict != wanted.verdict:
        return False
    return found.verdict == "differs" or _words(found.detail) == _words(wanted.detail)


def _words(detail: str) -> list[str]:
    return re.findall(r"[A-Za-z]{3,}", re.sub(r"'[^']*'|\([^)]*\)|\[.*", "", detail))[:6]


def _candidates(case: Case | None, values: Callable[[Case], Values]) -> Iterator[Case]:
    """Yield smaller cases, those that leave out most first."""
    assert case is not None
    if case.kind == "files":  # what is damaged has no smaller form that is known
        return
    model = case.proto()
    if len(model.graph.node) > 1:
        yield from _single_nodes(case, model, values(case))
        yield from _without_nodes(case, model)
    if len(model.graph.output) > 1:
        yield from _single_outputs(case, model)
    yield from _smaller_shapes(case, model)
    yield from _fewer_attributes(case, model)
    yield from _simpler_numbers(case, model)
    yield from _constants_as_inputs(case, model)


def _remade(case: Case, model: onnx.ModelProto, inputs: Values | None = None) -> Case:
    """Return `case` with another model, of which what nothing reads is dropped."""
    needed = {output.name for output in model.graph.output}
    kept = []
    for node in reversed(model.graph.node):
        if needed & set(node.output):
            kept.append(node)
            needed |= set(node.input)
    graph = onnx.GraphProto(name=model.graph.name)
    graph.node.extend(reversed(kept))
    graph.output.extend(model.graph.output)
    graph.initializer.extend(tensor for tensor in model.graph.initializer if tensor.name in needed)
    graph.input.extend(value for value in model.graph.input if value.name in needed)
    smaller = onnx.ModelProto()
    smaller.CopyFrom(model)
    smaller.graph.CopyFrom(graph)
    given = {name: value for name, value in (case.inputs if inputs is None else inputs).items() if name in needed}
    return replace(case, model=smaller.SerializeToString(), inputs=given)


def _single_nodes(case: Case, model: onnx.ModelProto, values: Values) -> Iterator[Case]:
    for node in model.graph.node:
        names = [name for name in node.input if name]
        if all(name in values for name in names):
            single = alone(node, model, values)
            typed = [_typed(output.name, values) for output in single.graph.output]
            del single.graph.output[:]
            single.graph.output.extend(typed)
            yield replace(case, model=single.SerializeToString(), inputs={name: values[name] for name in names})


def _typed(name: str, values: Values) -> onnx.ValueInfoProto:
    return helper.make_value_info(name, type_proto(values[name])) if name in values else onnx.ValueInfoProto(name=name)


def _without_nodes(case: Case, model: onnx.ModelProto) -> Iterator[Case]:
    """Leave out a node that nothing needs for a finding: the last ones, whose inputs become outputs."""
    for at in range(len(model.graph.node) - 1, -1, -1):
        node = model.graph.node[at]
        readers = [other for other in model.graph.node if set(other.input) & set(node.output)]
        if readers:
            continue
        smaller = onnx.ModelProto()
        smaller.CopyFrom(model)
        del smaller.graph.node[at]
        made = {name for other in smaller.graph.node for name in other.output}
        kept = [output for output in model.graph.output if output.name in made]
        del smaller.graph.output[:]
        smaller.graph.output.extend(kept or [onnx.ValueInfoProto(name=n) for n in node.input if n in made][:1])
        if smaller.graph.output:
            yield _remade(case, smaller)


def _single_outputs(case: Case, model: onnx.ModelProto) -> Iterator[Case]:
    for output in model.graph.output:
        smaller = onnx.ModelProto()
        smaller.CopyFrom(model)
        del smaller.graph.output[:]
        smaller.graph.output.append(output)
        yield _remade(case, smaller)


def _smaller_shapes(case: Case, model: onnx.ModelProto) -> Iterator[Case]:
    """Make every axis of one extent shorter, in all inputs and constants at once, and forget the shapes of outputs."""
    arrays = _arrays(case, model)
    extents = sorted({extent for array in arrays.values() for extent in array.shape if extent > 1}, reverse=True)
    for extent in extents:
        for shorter in (1, 2, extent // 2, extent - 1):
            for kept in (slice(0, shorter), slice(extent - shorter, extent)) if 0 < shorter < extent else ():
                yield _with_arrays(case, model, {name: _cut(array, extent, kept) for name, array in arrays.items()})
    for name, array in arrays.items():
        if array.ndim and array.shape[0] == 1:
            yield _with_arrays(case, model, {**arrays, name: array.reshape(array.shape[1:])})


def _cut(array: np.ndarray, extent: int, kept: slice) -> np.ndarray:
    return array[tuple(kept if size == extent else slice(None) for size in array.shape)].copy()


def _fewer_attributes(case: Case, model: onnx.ModelProto) -> Iterator[Case]:
    for at, node in enumerate(model.graph.node):
        for place in range(len(node.attribute)):
            smaller = onnx.ModelProto()
            smaller.CopyFrom(model)
            del smaller.graph.node[at].attribute[place]
            yield _remade(case, smaller)


def _simpler_numbers(case: Case, model: onnx.ModelProto) -> Iterator[Case]:
    arrays = _arrays(case, model)
    for name, array in arrays.items():
        for simpler in _simpler(array):
            if not _equal(simpler, array):
                yield _with_arrays(case, model, {**arrays, name: simpler})


def _simpler(array: np.ndarray) -> Iterator[np.ndarray]:
    if array.dtype.kind in "OUS" or array.dtype.kind == "b" or not array.size:
        return
    with np.errstate(all="ignore"):
        yield np.ones_like(array)
        if array.dtype.kind in "fiu" and array.dtype.kind == "f":
            yield np.round(array)


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    return a.tobytes() == b.tobytes()


def _constants_as_inputs(case: Case, model: onnx.ModelProto) -> Iterator[Case]:
    for at, tensor in enumerate(model.graph.initializer):
        if any(value.name == tensor.name for value in model.graph.input):
            continue
        smaller = onnx.ModelProto()
        smaller.CopyFrom(model)
        array = numpy_helper.to_array(tensor)
        del smaller.graph.initializer[at]
        smaller.graph.input.append(helper.make_value_info(tensor.name, type_proto(array, shape=array.shape)))
        yield _remade(case, smaller, {**case.inputs, tensor.name: array})


def _arrays(case: Case, model: onnx.ModelProto) -> dict[str, np.ndarray]:
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    return constants | {name: value for name, value in case.inputs.items() if isinstance(value, np.ndarray)}


def _with_arrays(case: Case, model: onnx.ModelProto, arrays: dict[str, np.ndarray]) -> Case:
    """Return `case` with other arrays for its inputs and constants; outputs are declared without shapes."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for tensor in changed.graph.initializer:
        array = arrays[tensor.name]
        words = [str(word).encode() for word in array.ravel()] if array.dtype.kind in "OUS" else None
        made = (
            numpy_helper.from_array(array, tensor.name)
            if words is None
            else helper.make_tensor(tensor.name, 8, array.shape, words)
        )
        tensor.CopyFrom(made)
    for value in changed.graph.input:
        if value.name in arrays:
            array = arrays[value.name]
            value.type.CopyFrom(helper.make_tensor_type_proto(element_type(array.dtype), array.shape))
    for value in changed.graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    inputs: dict[str, Any] = {name: arrays.get(name, value) for name, value in case.inputs.items()}
    return replace(case, model=changed.SerializeToString(), inputs=inputs)


def by_worker(outcome: Outcome, run: Callable[..., Outcome], job: Any) -> Outcome:
    """Return `outcome` minimised by a worker, whose `run` tries jobs made from `job`."""

    def values(case: Case) -> Values:
        made = run(replace(job, case=case, mode="values")).case
        return {} if made is None else made.inputs

    attempt: Try = partial(_attempt, run, job)
    return minimise(outcome, attempt, values)


def _attempt(run: Callable[..., Outcome], job: Any, case: Case) -> Outcome:
    found = run(replace(job, case=case))
    return replace(found, case=case) if found.verdict in ("signal", "hang") else found
