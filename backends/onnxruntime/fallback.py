"""Runs fallback subgraphs.

A subgraph is known by a key, the sha256 of its ONNX bytes. `register` opens it, and it stays open for as long as
somebody holds what that returns: a session has the weights of its subgraph once more.
"""

from __future__ import annotations

import ctypes
import functools
import os
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime as ort

from backends.onnxruntime.array_outputs import cast_outputs, lacking_dtypes
from backends.onnxruntime.run_errors import cause_of, run_error
from backends.onnxruntime.values import from_tensor, to_array, to_tensor, to_value
from backends.subgraphs import publish
from fusion.errors import UnsupportedOperatorError
from fusion.runtime import Tensor, tvm_ffi
from fusion.system.forks import Lock
from fusion.system.memory import usable_memory

# Those of which numpy and DLPack have arrays. ONNX Runtime takes and gives arrays in 3 us; for its own values it checks
# in Python whether the session's devices may read them, in 40 to 120 us.
_ARRAYS = frozenset(
    f"tensor({name})"
    for name in ("float", "float16", "double", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
)


@dataclass(frozen=True, eq=False)
class SessionSubgraph:
    """A subgraph that can be run; see `register`. Results that have one of `dtypes` are cast to it."""

    session: ort.InferenceSession
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    tensors_only: bool
    arrays_only: bool
    dtypes: tuple[np.dtype[Any] | None, ...]

    def call(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        """Run it for compiled code.

        Raises:
            ExecutionError: ONNX Runtime fails while it runs.
        """
        if self.arrays_only:
            return [tvm_ffi.from_dlpack(array) for array in _run_arrays(self, list(map(np.from_dlpack, tensors)))]
        feeds = {name: from_tensor(tensor) for name, tensor in zip(self.inputs, tensors, strict=True)}
        return [to_tensor(value) for value in _run(self, feeds)]


_subgraphs: weakref.WeakValueDictionary[str, SessionSubgraph] = weakref.WeakValueDictionary()
_lock = Lock()


def register(key: str, onnx_bytes: bytes, threads: int) -> SessionSubgraph:
    """Make the subgraph `key` runnable on `threads` threads, for as long as the caller holds what this returns; a key
    that is registered already stays as it is.

    Raises:
        UnsupportedOperatorError: ONNX Runtime does not take the subgraph.
    """
    with _lock:
        known = _subgraphs.get(key)
        if known is None:
            session = open_session(onnx_bytes, threads)
            dtypes = lacking_dtypes([value.type for value in session.get_outputs()])
            if any(dtypes) and not _takes_values(session):
                session = open_session(cast_outputs(onnx_bytes, dtypes), threads)
            known = SessionSubgraph(
                session=session,
                inputs=tuple(value.name for value in session.get_inputs()),
                outputs=tuple(value.name for value in session.get_outputs()),
                tensors_only=_takes_values(session),
                arrays_only=_ARRAYS.issuperset(_kinds(session)),
                dtypes=dtypes,
            )
            _subgraphs[key] = known
            publish(key, known)
        return known


def _kinds(session: ort.InferenceSession) -> list[str]:
    return [value.type for value in (*session.get_inputs(), *session.get_outputs())]


def _takes_values(session: ort.InferenceSession) -> bool:
    """Return whether all that it takes and gives are tensors, not of texts: values of ONNX Runtime's own in Python."""
    return all(kind.startswith("tensor(") and kind != "tensor(string)" for kind in _kinds(session))


def _keep_after_fork() -> None:
    """Keep the sessions in a forked process: closing one waits for its threads, which are not there. They still run."""
    for subgraph in list(_subgraphs.values()):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(subgraph.session))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_keep_after_fork)


_LARGEST_CONSTANT = "optimization.constant_folding_max_output_size_in_bytes"
"""Of one node; what is larger is computed by every run, as by the rest of fusion."""


_LOOP = b"\x22\x04Loop"
"""How a node says in a file that it is a Loop: its field 4, of 4 bytes."""


@functools.cache
def _limit_memory() -> bool:
    """Let all sessions take their memory from one place that has no more than this process may use; return whether
    ONNX Runtime does so.

    A tensor that only the run knows to be too large is an error of that run then, and not the end of the process.
    """
    place = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
    try:
        ort.create_and_register_allocator(place, ort.OrtArenaCfg({"max_mem": usable_memory()}))
    except Exception:  # the program has registered one itself; ONNX Runtime's exceptions share no base class
        return False
    return True


def open_session(onnx_bytes: bytes, threads: int, *, optimize: bool = True) -> ort.InferenceSession:
    """Return a session whose threads spin within a run, between its parallel parts, and sleep when it ends: spinning
    on, they would halve the speed of our own threads.

    Without `optimize` nothing is computed while it opens.

    Raises:
        UnsupportedOperatorError: ONNX Runtime does not take the model.
    """
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.force_spinning_stop", "1")
    # A Loop may keep tensors without end. ONNX Runtime's arena aborts where memory ends in its own lists of them; the
    # system's allocator fails with an exception.
    options.enable_cpu_mem_arena = _LOOP not in onnx_bytes
    shared = options.enable_cpu_mem_arena and _limit_memory()
    options.add_session_config_entry("session.use_env_allocators", "1" if shared else "0")
    options.add_session_config_entry(_LARGEST_CONSTANT, str(256 << 20))
    if not optimize:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        return ort.InferenceSession(onnx_bytes, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's exceptions share no base class
        raise UnsupportedOperatorError(
            "ONNX Runtime cannot run a part of the model",
            why=cause_of(error),
            hint="replace the operator, or express it in a model-local function",
        ) from error


def run(subgraph: SessionSubgraph, values: Sequence[Any]) -> list[Any]:
    """Run a subgraph that is a whole model on arrays, lists of them (sequences) or None (empty optionals).

    Raises:
        ExecutionError: ONNX Runtime fails while it runs.
    """
    if subgraph.arrays_only:
        return _run_arrays(subgraph, [np.asarray(value) for value in values])
    if subgraph.tensors_only:
        feeds = {name: to_value(np.asarray(value)) for name, value in zip(subgraph.inputs, values, strict=True)}
        return [to_array(value) for value in _run(subgraph, feeds)]
    try:
        # Strings, sequences and optionals; bfloat16 and smaller types it takes as its own values, and does not give.
        feeds = {name: _as_taken(value) for name, value in zip(subgraph.inputs, values, strict=True)}
        results = subgraph.session.run(subgraph.outputs, feeds)
    except Exception as error:  # ONNX Runtime's exceptions share no base class
        raise run_error(error) from error
    return [
        result if dtype is None else result.astype(dtype)
        for result, dtype in zip(results, subgraph.dtypes, strict=True)
    ]


def _as_taken(value: Any) -> Any:
    lacking = isinstance(value, np.ndarray) and hasattr(ml_dtypes, value.dtype.name)
    return to_value(value) if lacking else value


def _run_arrays(subgraph: SessionSubgraph, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    feeds = dict(zip(subgraph.inputs, arrays, strict=True))
    try:
        return [np.asarray(result) for result in subgraph.session.run(subgraph.outputs, feeds)]
    except Exception as error:  # ONNX Runtime's exceptions share no base class
        raise run_error(error) from error


def _run(subgraph: SessionSubgraph, feeds: dict[str, ort.OrtValue]) -> list[ort.OrtValue]:
    try:
        values: list[ort.OrtValue] = subgraph.session.run_with_ort_values(subgraph.outputs, feeds)
    except Exception as error:  # ONNX Runtime's exceptions share no base class
        raise run_error(error) from error
    return values
