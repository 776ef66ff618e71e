"""Graph records of any size for the tests of reports."""

from __future__ import annotations

from backends.kernel import KernelInfo
from fusion.model_graph import MAPPED, GraphCall, KeptEdge, ModelGraph, Read, SourceOperator

BLOCK = 5
"""Operators of a layer: two branches that meet, and a sum with what came in."""


def layered_graph(operators: int, *, distinct: bool = True) -> tuple[ModelGraph, dict[str, KernelInfo]]:
    """Return a graph with an input and this many operators, every BLOCK of which are a layer of two kernels.

    Args:
        distinct: Whether every layer has shapes of its own, so that none repeats.
    """
    nodes = [SourceOperator("x", "input", "float32[8,64]", (), (0,), MAPPED)]
    calls = [GraphCall("x", "input", "input", "float32[8,64]", (), 0, 0)]
    kernels: dict[str, KernelInfo] = {}
    kept, loops = [], {}
    for layer in range(operators // BLOCK):
        came = len(nodes) - 1
        value = f"float32[8,{64 + layer if distinct else 64}]"
        names = ["nn.conv2d", "add", "nn.relu", "matmul", "add"]
        reads = [[came], [came + 1], [came + 2], [came], [came + 3, came + 4]]
        first = len(calls)
        into = [first, first, first, first + 1, first + 1]
        for place, (name, sources, call) in enumerate(zip(names, reads, into, strict=True)):
            found = tuple(Read(source, 2048) for source in sources)
            nodes.append(SourceOperator(f"layer_{layer}_{place}_output", name, value, found, (call,), MAPPED))
        for part, sources in enumerate(([first - 1], [first - 1, first])):
            kernel = f"group_{part}_{layer if distinct else 0}"
            found = tuple(Read(source, 2048) for source in sources)
            calls.append(GraphCall(f"lv{first + part}", kernel, "kernel", value, found, 64, 9))
            kernels[kernel] = KernelInfo(
                kernel, ("conv2d", "add"), "convolution", "matmul", "14x2v", 10**6, 4096, 2048, 0.0, "", 1.5
            )
            loops[kernel] = ("parallel task in 2", "  for k in 64", "    28 x acc = acc, p0, p1")
        kept.append(KeptEdge("relu", "matmul", "matmul is a complex operator", first, first + 1, 2048))
    return ModelGraph(tuple(nodes), tuple(calls), tuple(kept), loops), kernels
