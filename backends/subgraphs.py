"""The packed function by which compiled code runs a subgraph of a library: `call_packed(RUN_SUBGRAPH, key, *inputs)`.

A subgraph is known for as long as somebody holds it: a session has the weights of its subgraph once more.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, Protocol

from fusion.carried_errors import carried
from fusion.errors import InternalError
from fusion.runtime import Tensor, tvm_ffi

RUN_SUBGRAPH = "fusion.fallback"
"""Its name in saved modules, from when ONNX Runtime alone ran subgraphs."""


def library_of(key: str) -> str:
    """Return the name of the library that runs the subgraph `key`; "" of one that ONNX Runtime does."""
    return key.rpartition(":")[0]


class Runnable(Protocol):
    """A subgraph that can be run."""

    def call(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return its results."""
        ...


_known: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()


def publish(key: str, subgraph: Runnable) -> None:
    """Let compiled code call `subgraph` by `key` while somebody holds it."""
    _known[key] = subgraph


@carried
def _call(key: str, *tensors: Tensor) -> Any:
    subgraph = _known.get(key)
    if subgraph is None:
        raise InternalError(f"fallback subgraph {key} is not registered", hint="report it with the model")
    results = subgraph.call(tensors)
    return results[0] if len(results) == 1 else tvm_ffi.convert(list(results))


tvm_ffi.register_global_func(RUN_SUBGRAPH, _call, override=True)
