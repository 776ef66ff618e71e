"""Lets forms whose packed weights are equal hold them once: those of one model for several input shapes, mostly.

A weight is known by its type and a hash of some of its bytes, and compared whole with what has the same: the first form
of a model pays for the hashes only, some microseconds a weight.
"""

from __future__ import annotations

import hashlib
import itertools
import weakref

import numpy as np

from fusion.runtime import Tensor
from fusion.tensors import as_tensor, byte_view, numpy_dtype

_LEAST_BYTES = 4096
"""Smaller weights are not worth looking for."""
_SAMPLES, _SAMPLE_BYTES = 16, 256

_Key = tuple[str, tuple[int, ...], bytes, int]
# Tensors take no weak references; the arrays that own their memory do.
_known: weakref.WeakValueDictionary[_Key, np.ndarray] = weakref.WeakValueDictionary()


def share_weights(weights: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return `weights`, each in memory that equal ones of the process share for as long as one of them is used.

    Nobody writes to the memory of weights.
    """
    return tuple(map(_shared, weights))


def _shared(weight: Tensor) -> Tensor:
    data = byte_view(weight)
    if data.nbytes < _LEAST_BYTES:
        return weight
    dtype, shape = str(weight.dtype), tuple(int(extent) for extent in weight.shape)
    digest = _digest(data)
    for number in itertools.count():
        own = _owner(data)
        owner = _known.setdefault((dtype, shape, digest, number), own)
        known = owner.reshape(-1).view(np.uint8)
        if owner is own or np.array_equal(known, data):
            break
    return as_tensor(known.view(numpy_dtype(dtype)).reshape(shape))


def _digest(data: np.ndarray) -> bytes:
    step = max(_SAMPLE_BYTES, len(data) // _SAMPLES)
    samples = [data[start : start + _SAMPLE_BYTES].tobytes() for start in range(0, len(data), step)]
    return hashlib.blake2b(b"".join(samples), digest_size=16).digest()


def _owner(array: np.ndarray) -> np.ndarray:
    """Return the array that all views of this memory made from now on keep alive."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
