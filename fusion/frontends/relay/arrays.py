"""Arrays in TVM's binary form, which the metadata section (in base64) and files of parameters share.

Little-endian: magic, reserved (8 bytes each), device (two int32), rank (int32), dtype (code and bits of a byte each,
lanes of two), shape (int64 each), size in bytes (int64), data.
"""

from __future__ import annotations

import math
import struct

import numpy as np

from fusion.tensors import numpy_dtype

_MAGIC = 0xDD5E40F096B4A13F
_HEAD = struct.Struct("<QQiiiBBH")
_MAX_RANK = 32
_KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 6: "bool"}
"""By DLPack's code."""
_DTYPES = frozenset(
    f"{kind}{bits}" for kind in ("int", "uint", "float") for bits in (8, 16, 32, 64) if (kind, bits) != ("float", 8)
) | {"bool", "bfloat16"}


class DamagedArray(ValueError):
    """The bytes are no array, or only the beginning of one."""


def is_dtype(name: str) -> bool:
    """Whether NumPy (with ml_dtypes) holds what TVM calls `name`."""
    return name in _DTYPES


class ByteReader:
    """Takes `data` apart from the front.

    Raises:
        DamagedArray: There are fewer bytes than asked for, or they do not mean what they should.
    """

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = memoryview(data)
        self._offset = 0

    @property
    def left(self) -> int:
        """How many bytes are left."""
        return len(self._data) - self._offset

    def take(self, size: int) -> memoryview:
        """Return the next `size` bytes."""
        if not 0 <= size <= self.left:
            raise DamagedArray(f"{size} bytes should follow at byte {self._offset}, and {self.left} do")
        self._offset += size
        return self._data[self._offset - size : self._offset]

    def integer(self) -> int:
        """Return the next 8 bytes as an unsigned integer."""
        return int.from_bytes(self.take(8), "little")

    def array(self) -> np.ndarray:
        """Return the next array, a copy that owns its memory."""
        magic, _, _, _, rank, code, bits, lanes = _HEAD.unpack(self.take(_HEAD.size))
        if magic != _MAGIC:
            raise DamagedArray(f"an array should begin with {_MAGIC:#x}, not {magic:#x}")
        if not 0 <= rank <= _MAX_RANK:
            raise DamagedArray(f"an array has {rank} axes")
        dtype = numpy_dtype(_dtype(code, bits, lanes))
        shape = struct.unpack(f"<{rank}q", self.take(8 * rank))
        size = self.integer()
        if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != size:
            raise DamagedArray(f"an array of shape {shape} and dtype {dtype.name} has {size} bytes")
        array: np.ndarray = np.frombuffer(self.take(size), dtype).reshape(shape).copy()
        return array


def _dtype(code: int, bits: int, lanes: int) -> str:
    name = f"{_KINDS.get(code, f'code{code}_')}{bits}"
    name = "bool" if name in ("uint1", "bool8", "bool1") else name
    if lanes != 1 or name not in _DTYPES:
        raise DamagedArray(f"an array has the dtype {name}{f'x{lanes}' if lanes != 1 else ''}, which NumPy lacks")
    return name
