"""The packed function by which compiled code runs a subgraph of a library: `call_packed(RUN_SUBGRAPH, key, *inputs)`.

A subgraph is known for as long as somebody holds it: a session has the weights of its subgraph once more.
"""

from __future__ import annotations

import hashlib
import re
import weakref
from collections.abc import Sequence
from typing import Any, Protocol

from fusion.carried_errors import carried
from fusion.errors import InternalError
from fusion.options import FALLBACK
from fusion.runtime import Tensor, tvm_ffi

RUN_SUBGRAPH = "fusion.fallback"
"""Its name in saved modules, from when ONNX Runtime alone ran subgraphs."""


def subgraph_key(library: str, data: bytes, threads: int) -> str:
    """Return the key of a subgraph that a library runs on so many threads: those of one key are the same."""
    digest = hashlib.sha256(data + threads.to_bytes(4, "little"))
    return f"{library}:{digest.hexdigest()}"


def library_of(key: str) -> str:
    """Return the name of the library that runs the subgraph `key`; "" of one that ONNX Runtime does."""
    return key.rpartition(":")[0]


def returned_by(key: str) -> str:
    """Return what the error of a check says of who returned what it looks at: the library that runs the subgraph
    `key`."""
    return f"returned by the backend {library_of(key) or FALLBACK!r}"


def who_returned(message: str) -> str:
    """Return the library that `returned_by` names in the message of an error; "" where it names none."""
    found = re.search(returned_by("(.*?):"), message)
    return found[1] if found else ""


class Runnable(Protocol):
    """A subgraph that can be run."""

    def call(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return its results."""
        ...


_known: weakref.WeakValueDictionary[str, weakref.WeakSet[Any]] = weakref.WeakValueDictionary()
_of_its_key: weakref.WeakKeyDictionary[Any, weakref.WeakSet[Any]] = weakref.WeakKeyDictionary()
"""What keeps those of a key, each of which runs as the others do, together while one of them is held."""
_asked: dict[str, weakref.ref[Any]] = {}
"""One of each key, which calls ask for: to look it up among all takes 3 us where kernels have used the caches."""


def publish(key: str, subgraph: Runnable) -> None:
    """Let compiled code call `subgraph`, or another that was published under `key`, by that while somebody holds
    one."""
    same = _known.setdefault(key, weakref.WeakSet())
    same.add(subgraph)
    _of_its_key[subgraph] = same


def published(key: str) -> Any:
    """Return a subgraph of a key, None where nobody holds one."""
    asked = _asked.get(key)
    subgraph = asked() if asked is not None else None
    if subgraph is None:
        subgraph = next(iter(_known.get(key, ())), None)
        if subgraph is not None:
            _asked[key] = weakref.ref(subgraph, lambda _: _asked.pop(key, None))
    return subgraph


@carried
def _call(key: str, *tensors: Tensor) -> Any:
    subgraph = published(key)
    if subgraph is None:
        raise InternalError(f"fallback subgraph {key} is not registered", hint="report it with the model")
    results = subgraph.call(tensors)
    return results[0] if len(results) == 1 else tvm_ffi.convert(list(results))


tvm_ffi.register_global_func(RUN_SUBGRAPH, _call, override=True)
