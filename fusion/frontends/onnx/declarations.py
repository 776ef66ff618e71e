"""Reads an ONNX file but for the data of its weights: what declares the inputs of a file of gigabytes is kilobytes."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from fusion.files import open_file, read_file
from fusion.memory import usable_memory

_LARGE = 4096
"""Bytes from which a part is looked into, and data left out."""
# Of each message of onnx.proto, by number of field: the messages below which data lies, and the data.
_DATA = "raw_data"
_WITHIN: Mapping[str, Mapping[int, str]] = {
    "ModelProto": {7: "GraphProto"},
    "GraphProto": {1: "NodeProto", 5: "TensorProto"},
    "NodeProto": {5: "AttributeProto"},
    "AttributeProto": {5: "TensorProto"},
    "TensorProto": {9: _DATA},
}
_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
"""Ways in which protobuf writes the value of a field (its encoding's wire types)."""
_WIDTHS = {_FIXED_64: 8, _FIXED_32: 4}


class _OddError(Exception):
    """The file is none, or is written as no exporter writes."""


def read_declarations(path: Path) -> bytes:
    """Return an ONNX model as `read_file(path)` does, the large data of tensors replaced by none.

    A file that breaks the encoding comes as it is: whoever parses it says what is wrong with it.

    Raises:
        OSError: As `open_file` does; or a part without raw data is larger than the memory this process may use.
    """
    try:
        with open_file(path) as file:
            return _copy(file, os.fstat(file.fileno()).st_size, "ModelProto")
    except _OddError:
        return read_file(path)


def _copy(file: BinaryIO, end: int, message: str) -> bytes:
    """Return the `message` that lies in `file` from where it is read up to `end`, without its large data."""
    parts = []
    while (start := file.tell()) < end:
        key = _read_varint(file)
        number, way = key >> 3, key & 7
        size = _read_varint(file) if way == _BYTES else _WIDTHS.get(way, 0)
        if way == _VARINT:
            _read_varint(file)
        elif way != _BYTES and way not in _WIDTHS:
            raise _OddError
        stop = file.tell() + size
        if stop > end:
            raise _OddError
        kind = _WITHIN[message].get(number) if way == _BYTES and size >= _LARGE else None
        if kind is None:
            if size >= _LARGE and stop - start > usable_memory():
                what = f"a part of it has {stop - start:,} bytes, more than the memory of this process"
                raise OSError(errno.EFBIG, what)
            file.seek(start)
            parts.append(file.read(stop - start))
        else:
            inner = b"" if kind == _DATA else _copy(file, stop, kind)
            parts += (_varint(key), _varint(len(inner)), inner)
            file.seek(stop)
    return b"".join(parts)


def _read_varint(file: BinaryIO) -> int:
    value = 0
    for place in range(10):
        byte = file.read(1)
        if not byte:
            raise _OddError
        value |= (byte[0] & 0x7F) << 7 * place
        if byte[0] < 0x80:
            return value
    raise _OddError


def _varint(value: int) -> bytes:
    text = bytearray()
    while value >= 0x80:
        text.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*text, value))
