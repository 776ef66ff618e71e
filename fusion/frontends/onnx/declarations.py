"""Reads an ONNX file but for the data of its weights, which may stay where it is: what declares the inputs of a file of
gigabytes is kilobytes."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import onnx
from onnx import TensorProto

from fusion.system.files import open_file, read_file
from fusion.system.memory import usable_memory

LARGE = 1 << 16
"""Bytes of a weight from which it is read to where it stays."""
THIS_FILE = "\0"
"""Where data lies that is external and in the model's own file: no path."""
_DATA = "raw_data"


@dataclass(frozen=True)
class _Left:
    """Which data of a file is left out.

    Attributes:
        within: Of each message of onnx.proto, by number of field: the messages below which data lies, and the data.
        large: Bytes from which a part is looked into, and data left out.
        instead: What follows the rest of a tensor, of whose data so many bytes from this place of the file on are out.
    """

    within: Mapping[str, Mapping[int, str]]
    large: int
    instead: Callable[[bytes, int, int], bytes]


def _declared(rest: bytes, start: int, size: int) -> bytes:
    return _varint(9 << 3 | _BYTES) + _varint(0)


def _apart(rest: bytes, start: int, size: int) -> bytes:
    """Return what says that the data lies in a file, that of the model, as ONNX says it of others: `rest` may say that
    it does not, as in what `onnx.save` writes of a model that `onnx.load` read with external data. Where it names a
    file, the data is that."""
    if TensorProto.FromString(rest).data_location == TensorProto.EXTERNAL:
        return b""
    places = {"location": THIS_FILE, "offset": str(start), "length": str(size)}
    entries = [onnx.StringStringEntryProto(key=key, value=value) for key, value in places.items()]
    data: bytes = TensorProto(data_location=TensorProto.EXTERNAL, external_data=entries).SerializeToString()
    return data


_DECLARATIONS = _Left(
    {
        "ModelProto": {7: "GraphProto"},
        "GraphProto": {1: "NodeProto", 5: "TensorProto"},
        "NodeProto": {5: "AttributeProto"},
        "AttributeProto": {5: "TensorProto"},
        "TensorProto": {9: _DATA},
    },
    4096,
    _declared,
)
_WEIGHTS_APART = _Left(
    {"ModelProto": {7: "GraphProto"}, "GraphProto": {5: "TensorProto"}, "TensorProto": {9: _DATA}}, LARGE, _apart
)
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
    return _read(path, _DECLARATIONS)


def read_with_weights_apart(path: Path) -> bytes:
    """Return an ONNX model as `read_file(path)` does, but for the large raw data of the weights of its graph: they are
    external, in no other file than this, and `external_data.WeightFiles` reads them.

    Raises:
        OSError: As `read_declarations` does.
    """
    return _read(path, _WEIGHTS_APART)


def _read(path: Path, left: _Left) -> bytes:
    try:
        with open_file(path) as file:
            return _copy(file, os.fstat(file.fileno()).st_size, "ModelProto", left)
    except _OddError:
        return read_file(path)


def _copy(file: BinaryIO, end: int, message: str, left: _Left) -> bytes:
    """Return the `message` that lies in `file` from where it is read up to `end`, without the data that is `left`."""
    parts, out = [], list[tuple[int, int]]()
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
        kind = left.within[message].get(number) if way == _BYTES and size >= left.large else None
        if kind is None:
            if size >= left.large and stop - start > usable_memory():
                what = f"a part of it has {stop - start:,} bytes, more than the memory of this process"
                raise OSError(errno.EFBIG, what)
            file.seek(start)
            parts.append(file.read(stop - start))
        elif kind == _DATA:
            out.append((stop - size, size))
            file.seek(stop)
        else:
            inner = _copy(file, stop, kind, left)
            parts += (_varint(key), _varint(len(inner)), inner)
            file.seek(stop)
    rest = b"".join(parts)
    if len(out) > 1:
        raise _OddError
    return rest + left.instead(rest, *out[0]) if out else rest


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
