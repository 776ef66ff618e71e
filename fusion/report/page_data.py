"""What the page of `explain_html` shows, as plain data in columns."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from backends.device_run import DeviceWork
from backends.kernel import KernelInfo
from fusion.model_graph import GraphCall, ModelGraph, SourceOperator
from fusion.options import GENERATOR
from fusion.report.placement import backends_of
from fusion.report.repeats import find_repeats

if TYPE_CHECKING:
    from fusion.report.profile import KernelTime, Profile

Columns = dict[str, Any]


class _Texts:
    """Texts that come often, each once."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        return self.numbers.setdefault(text, len(self.numbers))


def graph_columns(
    graph: ModelGraph,
    kernels: Mapping[str, KernelInfo],
    profile: Profile | None = None,
    works: Mapping[str, Sequence[DeviceWork]] = MappingProxyType({}),
    generator: str = GENERATOR,
) -> Columns:
    """Return both sides of `graph`, its kernels and the edges between them.

    Texts are positions in "texts"; nodes and calls are positions in the columns of their side. Times are in
    microseconds: of one call, measured if `profile` is given.

    Args:
        works: What kernels take on devices, by published figures.
        generator: As of `backends_of`.
    """
    texts, backends = _Texts(), backends_of(graph.calls, kernels, generator)
    counts = Counter(call.op for call in graph.calls if call.kind == "kernel")
    times = {} if profile is None else {time.kernel: time for time in profile.kernels}
    columns = {
        "before": _before(graph.operators, texts),
        "after": _after(graph.calls, texts, backends),
        "generator": generator,
        "kernels": {
            name: _kernel(kernels.get(name), count, graph.loops.get(name, ()), times.get(name))
            | {"devices": [dataclasses.asdict(work) for work in works.get(name, ())]}
            for name, count in counts.items()
        },
        "kept": [
            [edge.source, edge.target, texts(edge.producer), texts(edge.consumer), texts(edge.reason), edge.bytes]
            for edge in graph.kept
        ],
        "total_us": None if profile is None else profile.total_s * 1e6,
        "limits": "" if profile is None else str(profile).rpartition("\n")[2],
    }
    return {**columns, "texts": list(texts.numbers)}


def _before(operators: Sequence[SourceOperator], texts: _Texts) -> Columns:
    return {
        "name": [operator.name for operator in operators],
        "op": [texts(operator.op) for operator in operators],
        "value": [texts(operator.value) for operator in operators],
        "calls": [operator.calls for operator in operators],
        "how": [texts(operator.how) for operator in operators],
        **_edges(operators, [(operator.op, operator.value) for operator in operators]),
    }


def _after(calls: Sequence[GraphCall], texts: _Texts, backends: Sequence[str]) -> Columns:
    return {
        "name": [call.name for call in calls],
        "op": [
            texts(backend if call.kind == "fallback" else call.op)
            for call, backend in zip(calls, backends, strict=True)
        ],
        "backend": [texts(backend) for backend in backends],
        "kind": [texts(call.kind) for call in calls],
        "value": [texts(call.value) for call in calls],
        "weights": [call.weights for call in calls],
        "saved": [call.saved for call in calls],
        **_edges(calls, [(call.op, call.value) for call in calls]),
    }


def _edges(nodes: Sequence[SourceOperator | GraphCall], labels: list[tuple[str, str]]) -> Columns:
    sources = [[read.source for read in node.reads] for node in nodes]
    stacks = find_repeats(labels, sources)
    return {
        "sources": sources,
        "bytes": [[read.bytes for read in node.reads] for node in nodes],
        "stacks": [[stack.start, stack.period, stack.count] for stack in stacks],
    }


def _kernel(info: KernelInfo | None, calls: int, loops: Sequence[str], time: KernelTime | None) -> dict[str, Any]:
    known: dict[str, Any] = {"calls": calls, "loops": "\n".join(loops)}
    if info is not None:
        known |= {**dataclasses.asdict(dataclasses.replace(info, sized=None)), "read": info.read}
        del known["sized"]
    if time is not None:
        known |= {
            "us": time.seconds / time.calls * 1e6, "gflops": time.gflops, "gbs": time.gbs, "roofline": time.roofline,
            "bound": time.bound,
        }  # fmt: skip
    return known
