"""ONNX's node tests as older operator sets write them: what is an operand now was an attribute then.

`python -m tests.onnx_nodes.older_sets` compares fusion with ONNX Runtime on each operator in each set that changed it.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper

import fusion
from tests.frontends.against_onnxruntime import onnxruntime_runs
from tests.onnx_nodes.cases import load_cases
from tests.onnx_nodes.compare import mismatch

_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare")
# Of each operator: operands by position, what they were called as attributes, and since which set they are operands.
_MOVED: dict[str, tuple[int, tuple[tuple[int, str], ...]]] = {
    "Squeeze": (13, ((1, "axes"),)),
    "Unsqueeze": (13, ((1, "axes"),)),
    "ReduceSum": (13, ((1, "axes"),)),
    **{f"Reduce{name}": (18, ((1, "axes"),)) for name in _REDUCTIONS},
    "Clip": (11, ((1, "min"), (2, "max"))),
    "Slice": (10, ((1, "starts"), (2, "ends"), (3, "axes"))),
    "Pad": (11, ((1, "pads"), (2, "value"))),
    "Split": (13, ((1, "split"),)),
    "TopK": (10, ((1, "k"),)),
    "Dropout": (12, ((1, "ratio"),)),
    "Reshape": (5, ((1, "shape"),)),
}
_SCALARS: dict[str, type] = {"min": float, "max": float, "value": float, "ratio": float, "k": int}


@dataclass(frozen=True)
class OldCase:
    """One node under an older set."""

    name: str
    model: onnx.ModelProto
    inputs: dict[str, np.ndarray]


def old_cases(each: int) -> Iterator[OldCase]:
    """Yield up to `each` cases for each version of each operator; some are valid under no such set."""
    taken: Counter[tuple[str, int]] = Counter()
    versions = _versions()
    for name, case in load_cases().items():
        nodes = case.model.graph.node
        plain = len(nodes) == 1 and not nodes[0].domain and not any(a.HasField("g") for a in nodes[0].attribute)
        if not plain or not all(isinstance(value, np.ndarray) for value in case.data_sets[0][0]):
            continue
        op = str(nodes[0].op_type)
        inputs = dict(zip((value.name for value in case.model.graph.input), case.data_sets[0][0], strict=True))
        for version in versions[op]:
            if taken[op, version] < each:
                taken[op, version] += 1
                yield _under(OldCase(f"{name} in set {version}", case.model, inputs), version)


def _versions() -> dict[str, list[int]]:
    """Return, of each operator, the last set of each of its versions but the newest."""
    since = defaultdict(set)
    for schema in onnx.defs.get_all_schemas_with_history():
        if not schema.domain:
            since[schema.name].add(schema.since_version)
    return {op: [version - 1 for version in sorted(found)[1:]] for op, found in since.items()}


def _under(case: OldCase, version: int) -> OldCase:
    model, inputs = onnx.ModelProto(), dict(case.inputs)
    model.CopyFrom(case.model)
    model.ir_version = 8
    model.opset_import[0].version = version
    node = model.graph.node[0]
    since, moved = _MOVED.get(node.op_type, (0, ()))
    for index, attribute in reversed(moved) if version < since else ():
        if index < len(node.input):
            _move(node, index, attribute, inputs)
    kept = [value for value in model.graph.input if value.name in inputs]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    return OldCase(case.name, model, inputs)


def _move(node: onnx.NodeProto, index: int, attribute: str, inputs: dict[str, np.ndarray]) -> None:
    value = inputs.pop(node.input[index], None)
    del node.input[index]
    if value is not None and value.size:
        scalar = _SCALARS.get(attribute)
        numbers: Any = [int(item) for item in value.reshape(-1)] if scalar is None else scalar(value.reshape(-1)[0])
        node.attribute.append(helper.make_attribute(attribute, numbers))


def verdict(case: OldCase) -> str:
    """Return "ok", "refused there" where ONNX Runtime refuses, or what is wrong."""
    try:
        expected = onnxruntime_runs(case.model, case.inputs)
    except Exception:  # ONNX Runtime's exceptions share no base class
        return "refused there"
    try:
        module = fusion.compile(case.model, threads=1, wait=True)
        found = module(*(case.inputs[spec.name] for spec in module.inputs))
    except fusion.FusionError as error:
        return f"refused here: {error.what}"
    return mismatch(found, expected, rtol=1e-3, atol=1e-4) or "ok"


def main() -> None:
    """Print what is wrong, and counts."""
    parser = argparse.ArgumentParser(prog="python -m tests.onnx_nodes.older_sets", description=__doc__)
    parser.add_argument("--each", type=int, default=2, help="cases for each version of each operator")
    counts: Counter[str] = Counter()
    for case in old_cases(parser.parse_args().each):
        found = verdict(case)
        counts[found.split(":")[0]] += 1
        if found not in ("ok", "refused there"):
            print(f"{case.name}: {found}", flush=True)
    print(dict(counts))


if __name__ == "__main__":
    main()
