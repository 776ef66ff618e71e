"""Capsules of tensors on a device, as other libraries take and give them; no memory is read."""

from __future__ import annotations

import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from backends.cuda.runtime.dlpack import ForeignTensor, export
from fusion.runtime import tvm_ffi

PLACE = 0x10000


class Owner:
    """Whose memory it is, and what speaks DLPack for it."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 1

    def __dlpack__(self, **_: Any) -> Any:
        return export(self, PLACE, 1, (3, 4), np.dtype(ml_dtypes.bfloat16), versioned=False)


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize(
    ("shape", "dtype"), [((3, 4), ml_dtypes.bfloat16), ((), np.bool_), ((0, 4), np.float16), ((2,), np.int64)]
)
def test_the_owner_lives_as_long_as_a_capsule_or_who_took_it(
    shape: tuple[int, ...], dtype: Any, versioned: bool
) -> None:
    for takes in (False, True):
        owner = Owner()
        lives = weakref.ref(owner)
        capsule = export(owner, PLACE, 1, shape, np.dtype(dtype), versioned=versioned)
        del owner
        assert lives() is not None
        tensor = ForeignTensor(capsule) if takes else None
        if tensor is not None:
            assert (tensor.shape, tensor.dtype, tensor.address) == (shape, dtype, PLACE)
            assert tensor.is_contiguous
            with pytest.raises(ValueError, match="taken before"):
                ForeignTensor(capsule)
        del capsule, tensor
        assert lives() is None


def test_another_library_reads_what_is_exported() -> None:
    tensor = tvm_ffi.from_dlpack(Owner())
    assert (tuple(tensor.shape), str(tensor.dtype), str(tensor.device)) == ((3, 4), "bfloat16", "cuda:1")

    def fails() -> None:
        held = tvm_ffi.from_dlpack(Owner())
        raise ZeroDivisionError(held.shape)

    with pytest.raises(ZeroDivisionError):  # which what frees the tensor meanwhile does not lose
        fails()


@pytest.mark.parametrize("options", [{}, {"max_version": (1, 0)}])
def test_what_another_library_exports_is_read(options: dict[str, tuple[int, int]]) -> None:
    for array in (np.zeros((3, 4), np.float32), np.zeros((2, 6, 5), np.int64)[:, ::2], np.zeros((1, 3, 1), np.uint8).T):
        tensor = ForeignTensor(array.__dlpack__(**options))
        assert (tensor.shape, tensor.dtype, tensor.address) == (array.shape, array.dtype, array.ctypes.data)
        assert tensor.is_contiguous == array.flags.c_contiguous
    with pytest.raises(ValueError, match="no capsule"):
        ForeignTensor(3)
