"""Copies of arrays as tensors."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from fusion import tensors
from fusion.tensors import ALIGNMENT, aligned_copy, as_numpy, byte_view


@pytest.mark.parametrize("dtype", [np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16)], ids=str)
@pytest.mark.parametrize("rows", [0, 1, 2, 7])
def test_large_copies_are_those_of_one_thread(rows: int, dtype: np.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of an array that does not lie together, of as many rows as there are threads and of fewer."""
    monkeypatch.setattr(tensors, "_LARGE", 1)
    array = np.arange(5 * rows * 3).reshape(5, rows, 3).astype(dtype).transpose(1, 2, 0)
    copied = aligned_copy(array)
    assert not rows or byte_view(copied).ctypes.data % ALIGNMENT == 0
    np.testing.assert_array_equal(as_numpy(copied).view(np.uint8), np.ascontiguousarray(array).view(np.uint8))
