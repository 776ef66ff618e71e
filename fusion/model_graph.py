"""The graph of a model before and after fusion, as plain data for reports.

A leaf: reports of a saved module need nothing of TVM's compiler.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MAPPED, INFERRED, FOLDED, UNKNOWN = "mapped", "inferred", "folded", "unknown"


@dataclass(frozen=True)
class Read:
    """A tensor that a node takes from another.

    Attributes:
        source: Position of the node that makes it, or of the input that it is.
        bytes: Size; 0 where only the run knows it.
    """

    source: int
    bytes: int


@dataclass(frozen=True)
class SourceOperator:
    """An operator of the model as it was imported, before any pass.

    Attributes:
        name: Of its result; ONNX's, if it has one, with "_" for what is no letter or digit.
        op: Relax's name of the operator, or "input"; "if" chooses between the results of two branches.
        value: Dtype and shape of its result: "float32[1,3,224,224]".
        reads: What it takes from other operators; weights are not listed.
        calls: Positions of the calls that it became a part of.
        how: How those are known. "mapped": its result was followed through the passes. "inferred": a rewrite replaced
            the result, and these are the calls around it. "folded": it was computed while compiling. "unknown".
    """

    name: str
    op: str
    value: str
    reads: tuple[Read, ...]
    calls: tuple[int, ...]
    how: str


@dataclass(frozen=True)
class GraphCall:
    """A step of the compiled model, in order of execution; reshapes are none, as they only rename memory.

    Attributes:
        name: Of its result.
        op: Name of the kernel, key of the subgraph, or name of what is called instead.
        kind: "kernel", "input", "fallback" (a library), "if" or "runtime" (functions of the runtime library).
        value: Dtype and shape of its result.
        reads: What it takes from other calls; weights are not listed.
        weights: Bytes of the weights that it takes.
        saved: Bytes that it would have to write and read more if each of its operators were a kernel.
    """

    name: str
    op: str
    kind: str
    value: str
    reads: tuple[Read, ...]
    weights: int
    saved: int


@dataclass(frozen=True)
class KeptEdge:
    """A tensor that goes through memory between two kernels, and why.

    Attributes:
        producer, consumer: Operators in those kernels.
        source, target: Positions of their calls; -1 where the call is not known.
        bytes: Size of the tensor.
    """

    producer: str
    consumer: str
    reason: str
    source: int
    target: int
    bytes: int


@dataclass(frozen=True)
class ModelGraph:
    """One form of a model.

    Attributes:
        operators: Before fusion; each comes after those that it reads.
        calls: After fusion; each comes after those that it reads.
        kept: The edges between kernels that were not fused.
        loops: The loop nest of each kernel, a line for each loop or group of statements, indented by its depth.
        rewritten: Positions of the calls of each operator that a rewrite made, by the name of its result; the model as
            it was imported has none of them.
    """

    operators: tuple[SourceOperator, ...] = ()
    calls: tuple[GraphCall, ...] = ()
    kept: tuple[KeptEdge, ...] = ()
    loops: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    rewritten: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
