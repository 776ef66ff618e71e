"""Memory of the results that `main` takes as parameters: what callers have let go of is used again.

A result is its caller's, so that a run must not write to the memory of an earlier one while anybody has that. Fresh
memory of large arrays comes from the system page by page as it is written: 200 results of PP-OCR's recogniser, 2.6 GB,
took 2.4 s to write and 0.4 s once more, in a virtual machine whose host takes free pages back.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable

import numpy as np

from fusion.module.plan import Argument
from fusion.runtime import Tensor, tvm_ffi
from fusion.tensors import allocate, as_tensor, numpy_dtype, tensor_bytes

LARGE_RESULT = 1 << 20
"""Bytes. The system's allocator keeps what is smaller."""
_PARTS = 8
"""Blocks are as large as so many parts of a power of two, so that one serves results of several sizes."""
_LOOSE = 2
"""So many times as large as a result a block may be: who keeps the result keeps all of it."""
_KEPT = 2
"""So many times the largest result blocks that nobody has may take together: of 2.6 GB that PP-OCR's 200 results take,
three quarters lie in memory that is used again then; of once the largest result two fifths."""


class ResultMemory:
    """Blocks of memory, each with one result at a time. Several threads may ask at a time."""

    def __init__(self) -> None:
        self._idle: dict[int, list[np.ndarray]] = {}
        self._largest = 0

    def giver(self, result: Argument) -> Callable[[], Tensor]:
        """Return what each run calls for the memory of a result, which nobody else has as long as anything of it lives.

        It raises LimitError where there is none.
        """
        if tensor_bytes(result.shape, result.dtype) >= LARGE_RESULT:
            return functools.partial(self._take, result.shape, result.dtype)
        return functools.partial(_allocate, tvm_ffi.Shape(result.shape), tvm_ffi.dtype(result.dtype), _CPU, None)

    def _take(self, shape: tuple[int, ...], dtype: str) -> Tensor:
        used = tensor_bytes(shape, dtype)
        size = _block_size(used)
        self._largest = max(self._largest, size)
        block = self._find(size)
        lent = _Lent(allocate(size, zeroed=False) if block is None else block, used, self._give)
        return as_tensor(np.asarray(lent).view(numpy_dtype(dtype)).reshape(shape))

    def _find(self, least: int) -> np.ndarray | None:
        for size in sorted(self._idle):
            if least <= size <= _LOOSE * least:
                with contextlib.suppress(IndexError):  # another thread was faster
                    return self._idle[size].pop()
        return None

    def _give(self, block: np.ndarray) -> None:
        """Take back a block, in whichever thread let go of it and wherever that was: it may be inside of `_take`, so
        there is no lock."""
        idle = sum(size * len(blocks) for size, blocks in tuple(self._idle.items()))
        if idle + len(block) <= _KEPT * self._largest:
            self._idle.setdefault(len(block), []).append(block)


class _Lent:
    """Owns a block as long as arrays lie in it."""

    def __init__(self, block: np.ndarray, size: int, give: Callable[[np.ndarray], None]) -> None:
        self._block, self._give = block, give
        self.__array_interface__ = block[:size].__array_interface__

    def __del__(self) -> None:
        self._give(self._block)


def _block_size(size: int) -> int:
    part = (1 << (size.bit_length() - 1)) // _PARTS
    return -(-size // part) * part


_CPU = tvm_ffi.device("cpu", 0)
_allocate = tvm_ffi.get_global_func("runtime.TVMTensorAllocWithScope")
