"""Runs a model in float64 with onnx's reference evaluator and our own windows, normalisations and indices."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from bench.reference import indices, normalize, quantize, windows
from bench.reference.widen import widen

_OPERATORS = [*windows.OPERATORS, *normalize.OPERATORS, *indices.OPERATORS]


class NoReferenceError(Exception):
    """The model cannot be evaluated in float64; the text says why."""


def evaluate(path: Path, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the outputs of the ONNX file at `path`, every float32 computed as float64.

    Raises:
        NoReferenceError: The evaluator has no such operator, or failed in one.
    """
    model = widen(onnx.load(path))
    feeds = {
        name: value.astype(np.float64) if value.dtype == np.float32 else value for name, value in inputs.items()
    }
    try:
        results = _run(ReferenceEvaluator(model, new_ops=_operators(model)), model.graph, feeds)
    except Exception as error:
        raise NoReferenceError(f"{type(error).__name__}: {error}") from error
    return {output.name: np.asarray(results[output.name]) for output in model.graph.output}


def _operators(model: onnx.ModelProto) -> list[type[OpRun]]:
    """Return those that the evaluator lacks or gets wrong."""
    opset = max((each.version for each in model.opset_import if not each.domain), default=0)
    return [*_OPERATORS, *(quantize.OPERATORS if opset < quantize.FIRST_OPSET else ())]


def _run(evaluator: ReferenceEvaluator, graph: onnx.GraphProto, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return the outputs by name. `ReferenceEvaluator.run` does this too, but keeps every intermediate until the end.

    PP-OCR's recognition took 6.2 GB that way for six lines of 832 columns.
    """
    results: dict[str, Any] = {"": None, **evaluator.rt_inits_, **feeds}
    for node, dead in zip(evaluator.rt_nodes_, _dead_after(graph), strict=True):
        arguments = [results[name] for name in node.input]
        produced = node.run(*arguments, **({"context": results} if node.need_context() else {}))
        results.update((name, value) for name, value in zip(node.output, produced, strict=False) if name)
        for name in dead:
            results.pop(name, None)
    return results


def _dead_after(graph: onnx.GraphProto) -> list[list[str]]:
    """Return, for each node, the values that neither a later node nor the caller reads."""
    kept = {"", *(output.name for output in graph.output)}
    last = {name: place for place, node in enumerate(graph.node) for name in (*_reads(node), *node.output)}
    dead = defaultdict(list)
    for name, place in last.items():
        if name not in kept:
            dead[place].append(name)
    return [dead[place] for place in range(len(graph.node))]


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    """Yield what `node` reads, its subgraphs included; their own values are among them, and harm nobody."""
    yield from node.input
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            for inner in attribute.g.node:
                yield from _reads(inner)
            yield from (output.name for output in attribute.g.output)
