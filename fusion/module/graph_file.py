"""The `ModelGraph` of a form as bytes, for the file of a saved module."""

from __future__ import annotations

import dataclasses
import json
import zlib

from fusion.model_graph import ModelGraph
from fusion.module.archive import Data
from fusion.module.manifest import parse

_MOST_BYTES = 1 << 28
"""A million operators; a member that unpacks to more is no graph that `write_graph` wrote."""


def write_graph(graph: ModelGraph) -> bytes:
    """Return `graph` as JSON, packed by zlib to about a tenth."""
    return zlib.compress(json.dumps(dataclasses.asdict(graph), separators=(",", ":")).encode())


def read_graph(data: Data) -> ModelGraph:
    """Return what `write_graph` was given.

    Raises:
        ValueError: `data` is something else.
    """
    unpack = zlib.decompressobj()
    try:
        text = unpack.decompress(bytes(data), _MOST_BYTES)
    except zlib.error as error:
        raise ValueError(f"the graph cannot be unpacked: {error}") from error
    if unpack.unconsumed_tail:
        raise ValueError("the graph is too large")
    graph = parse(json.loads(text), ModelGraph, "graph")
    assert isinstance(graph, ModelGraph)
    return graph
