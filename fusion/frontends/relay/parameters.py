"""Parameters by name: from a dict, from an .npz, or from what `relay.save_param_dict` wrote.

The last is little-endian: magic, reserved (8 bytes), the number of names (8), each with its length (8), the number of
arrays (8), the arrays (`arrays.py`).
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from fusion.errors import OptionError, ParameterFileError
from fusion.frontends.relay.arrays import ByteReader, DamagedArray
from fusion.system.files import read_file
from fusion.system.memory import usable_memory

Parameters: TypeAlias = "Mapping[str, Any] | str | Path | bytes"

_MAGIC = 0xF7E58D4F05049CB7
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")


def read_parameters(source: Parameters) -> dict[str, np.ndarray]:
    """Return arrays by name.

    Args:
        source: A mapping to NumPy arrays or to tensors with `numpy()`; or the path or the bytes of an .npz or of TVM's
            list of parameters.

    Raises:
        ParameterFileError: A file is missing, cut short or something else.
        OptionError: A value is no array, or `source` is of another kind.
    """
    if isinstance(source, Mapping):
        return {str(name): _as_array(str(name), value) for name, value in source.items()}
    if isinstance(source, (bytes, bytearray)):
        return _decode(bytes(source), "the bytes given as parameters")
    if isinstance(source, (str, Path)):
        return _decode(_read(Path(source)), f"{str(source)!r}")
    raise OptionError(
        f"params= cannot be a {type(source).__name__}",
        hint="give a dict of arrays, or the path of a file of parameters",
    )


def _as_array(name: str, value: Any) -> np.ndarray:
    for method in ("numpy", "asnumpy"):
        if not isinstance(value, (np.ndarray, np.generic)) and callable(getattr(value, method, None)):
            value = _convert(name, getattr(value, method))
    if not isinstance(value, (np.ndarray, np.generic)):
        raise OptionError(f"the parameter {name!r} is a {type(value).__name__}, no array", hint="give NumPy arrays")
    return np.asarray(value)


def _convert(name: str, convert: Any) -> Any:
    try:
        return convert()
    except Exception as error:  # whatever the tensor's own code raises
        raise OptionError(f"the parameter {name!r} has no NumPy form", why=str(error)[:300]) from error


def _read(path: Path) -> bytes:
    try:
        return read_file(path)
    except OSError as error:
        raise ParameterFileError(
            f"cannot read the parameters in {str(path)!r}", why=error.strerror or str(error), hint="check the path"
        ) from error


def _decode(data: bytes, name: str) -> dict[str, np.ndarray]:
    try:
        if data.startswith(_ZIP):
            return _decode_npz(data)
        return _decode_list(ByteReader(data))
    except Exception as error:  # a damaged archive raises whatever numpy, zipfile, zlib and struct raise
        raise ParameterFileError(
            f"cannot read the parameters in {name}",
            why=str(error)[:300] or type(error).__name__,
            hint="write them with numpy.savez, or with relay.save_param_dict",
        ) from error


def _decode_npz(data: bytes) -> dict[str, np.ndarray]:
    with zipfile.ZipFile(BytesIO(data)) as archive:
        size = sum(member.file_size for member in archive.infolist())
        if size > usable_memory():
            raise DamagedArray(f"it unpacks to {size:,} bytes, more than the memory of this process")
    with np.load(BytesIO(data), allow_pickle=False) as arrays:
        found = {name: arrays[name] for name in arrays.files}
    for name, array in found.items():
        if not isinstance(array, np.ndarray):
            raise DamagedArray(f"its member {name!r} is no array")
    return found


def _decode_list(reader: ByteReader) -> dict[str, np.ndarray]:
    magic = reader.integer() if reader.left >= 8 else 0
    if magic != _MAGIC:
        raise DamagedArray("it is neither an .npz nor a list of parameters that TVM wrote")
    reader.integer()
    names = []
    for _ in range(_count(reader)):
        names.append(str(reader.take(reader.integer()), "utf-8"))
    if _count(reader) != len(names) or len(set(names)) != len(names):
        raise DamagedArray("names and arrays do not match")
    arrays = {name: reader.array() for name in names}
    if reader.left:
        raise DamagedArray(f"{reader.left} bytes follow the last array")
    return arrays


def _count(reader: ByteReader) -> int:
    """Return the next integer, of things that each take 8 bytes or more."""
    count = reader.integer()
    if count * 8 > reader.left:
        raise DamagedArray(f"{count} entries should follow, and {reader.left} bytes do")
    return count
