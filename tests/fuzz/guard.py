"""Puts every array that a compiled model reads or writes beside a page that nobody may touch.

An access outside then ends the process, where it would else read or overwrite a neighbour. Inputs, weights and buffers
are placed from Python, outputs and what kernels allocate by a library that `preload` compiles and puts before libc. The
promise that is checked: kernels touch no byte outside a tensor, and assume no alignment beyond an element's.
"""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np

import fusion.module.plan
import fusion.tensors
from fusion.module import program
from fusion.tensors import as_numpy, as_tensor

SIDES = {"after": 1, "before": 2}
_SOURCE = Path(__file__).with_name("guard.c")
_RANGE = 17 << 30
"""Bytes of addresses that the library takes; only what is in use takes memory."""
_NAIVE_ALLOCATOR = 1
"""Of TVM's virtual machine: a block of memory for each tensor, where the other rounds up to pages."""


def preload(folder: Path) -> None:
    """Compile the library and have it loaded before all others by processes that start from now on."""
    folder.mkdir(parents=True, exist_ok=True)
    library = folder.resolve() / "guard.so"
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(_SOURCE), "-ldl"], check=True)
    os.environ["LD_PRELOAD"] = str(library)


def install(side: str) -> None:
    """Guard what this process compiles and runs from now on, on the `side` "after" or "before"."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "guard_reserve"):
        raise RuntimeError("the guarding library is not loaded: call `preload` before the worker starts")
    library.guard_block.restype = ctypes.c_void_p
    library.guard_block.argtypes = (ctypes.c_size_t, ctypes.c_int)
    now, most = resource.getrlimit(resource.RLIMIT_AS)
    if now != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_AS, (now + _RANGE, most))
    if not library.guard_reserve():
        raise MemoryError("no room for guarded memory")
    number = SIDES[side]

    def allocate(size: int) -> np.ndarray:
        if not size:
            return np.zeros(0, np.uint8)
        address = library.guard_block(size, number)
        if not address:
            raise MemoryError(f"no {size} bytes of guarded memory")
        return np.frombuffer((ctypes.c_uint8 * size).from_address(address), np.uint8)

    fusion.tensors.allocate = allocate
    fusion.module.plan.allocate = allocate
    program._POOLED_ALLOCATOR = _NAIVE_ALLOCATOR
    program.KernelProgram.__init__ = _with_guarded_weights(program.KernelProgram.__init__, allocate)
    program.KernelProgram._run = _while_guarded(program.KernelProgram._run, library, number)


def _with_guarded_weights(
    initialize: Callable[..., None], allocate: Callable[[int], np.ndarray]
) -> Callable[..., None]:
    @wraps(initialize)
    def guarded(self: Any, library: Any, plan: Any, weights: tuple[Any, ...], **others: Any) -> None:
        initialize(self, library, plan, tuple(_copied(weight, allocate) for weight in weights), **others)

    return guarded


def _copied(weight: Any, allocate: Callable[[int], np.ndarray]) -> Any:
    array = as_numpy(weight)
    copy = allocate(array.nbytes).view(array.dtype).reshape(array.shape)
    copy[...] = array
    return as_tensor(copy)


def _while_guarded(run: Callable[..., Any], library: ctypes.CDLL, number: int) -> Callable[..., Any]:
    switch = ctypes.c_int.in_dll(library, "guard_side")

    @wraps(run)
    def guarded(self: Any, arrays: Any) -> Any:
        switch.value = number
        try:
            return run(self, arrays)
        finally:
            switch.value = 0

    return guarded
