"""Reads the tensors that a model keeps in files beside it, and in no other place."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
from onnx import TensorProto
from onnx.helper import tensor_dtype_to_np_dtype

from fusion.errors import InvalidModelError, LimitError, ModelFileError
from fusion.frontends.onnx.declarations import LARGE, THIS_FILE
from fusion.frontends.onnx.parts import tensors
from fusion.frontends.onnx.types import data_bytes
from fusion.system.files import open_file
from fusion.system.memory import usable_memory
from fusion.tensors import allocate


def refuse_external_data(model: onnx.ModelProto) -> None:
    """Raise if a tensor of `model`, which came without a file, lies in another file: there is no folder to look in.

    Raises:
        ModelFileError: One does.
    """
    for tensor in tensors(model):
        if tensor.data_location == TensorProto.EXTERNAL:
            raise ModelFileError(
                f"the external data of tensor {tensor.name!r} lies in another file",
                where=tensor.name,
                why="a model that is no file has no folder",
                hint="give the path of the model, or call onnx.load_external_data_for_model first",
            )


def _large_weights(model: onnx.ModelProto) -> list[TensorProto]:
    """Return the weights of the graph of `model` that lie in files and that `WeightFiles` reads to where they stay."""
    external = (tensor for tensor in model.graph.initializer if tensor.data_location == TensorProto.EXTERNAL)
    return [tensor for tensor in external if tensor.data_type in _PLAIN and data_bytes(tensor) >= LARGE]


_PLAIN = frozenset(
    {
        TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.INT8, TensorProto.INT16,
        TensorProto.INT32, TensorProto.INT64, TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32,
        TensorProto.UINT64,
    }
)  # fmt: skip
"""Types of which the elements in a file are those in memory, of a type that NumPy has itself."""


@dataclass(frozen=True)
class WeightFiles:
    """Reads the weights of a model that lie in files.

    Attributes:
        path: Of the model.
    """

    path: Path

    def array(self, tensor: TensorProto) -> np.ndarray:
        """Return a large weight of the graph of a model that was read without its data, aligned.

        Raises:
            ModelFileError: A file is missing, too short, no regular one, or outside the model's folder.
            InvalidModelError: The data does not fill the shape.
            LimitError: There is not that much memory.
        """
        with _telling(tensor, self.path), _opened(tensor, self.path) as part:
            if part.size != data_bytes(tensor):
                raise InvalidModelError(
                    f"the data of weight {tensor.name!r} does not fill its shape",
                    where=tensor.name,
                    why=f"the shape is {tuple(tensor.dims)}, and there are {part.size} bytes",
                )
            data = allocate(part.size)
            if part.file.readinto(data.data) != part.size:
                raise ValueError("it ended while it was read")
            array: np.ndarray = data.view(tensor_dtype_to_np_dtype(tensor.data_type)).reshape(tuple(tensor.dims))
            return array


def read_external_data(model: onnx.ModelProto, path: Path, *, weights_apart: bool) -> None:
    """Put the data of all tensors of `model` that lie in files, but for those that `WeightFiles` reads where these stay
    apart, into `model`, which was read from `path`.

    Raises:
        ModelFileError: A file is missing, too short, no regular one, or outside the model's folder.
        LimitError: They have more bytes than there is memory.
    """
    left = usable_memory()
    apart = _large_weights(model) if weights_apart else []
    read_later = set(map(id, apart))
    for tensor in tensors(model):
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        with _telling(tensor, path), _opened(tensor, path) as part:
            left -= part.size
            if left < 0:
                raise LimitError(
                    f"the external data does not fit the {usable_memory():,} bytes of memory of this process",
                    where=f"tensor {tensor.name!r}",
                )
            if id(tensor) in read_later:
                continue
            tensor.raw_data = part.file.read(part.size)
        tensor.data_location = TensorProto.DEFAULT
        del tensor.external_data[:]


def external_files(model: onnx.ModelProto, path: Path) -> list[Path]:
    """Return the files that tensors of `model`, which was read from `path`, lie in.

    Raises:
        ValueError: One is outside of the model's folder.
    """
    folder = Path(os.path.realpath(path.parent))
    located = (tensor for tensor in tensors(model) if tensor.data_location == TensorProto.EXTERNAL)
    return list(dict.fromkeys(_find(_fields(tensor), folder) for tensor in located))


def _fields(tensor: TensorProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in tensor.external_data}


def _find(fields: Mapping[str, str], folder: Path) -> Path:
    location = Path(fields.get("location", ""))
    if not location.name or location.is_absolute() or ".." in location.parts:
        raise ValueError(f"{str(location)!r} is no path within the model's folder")
    found = Path(os.path.realpath(folder / location))
    if not found.is_relative_to(folder):
        raise ValueError(f"{str(location)!r} is a link that leaves the model's folder")
    return found


class _Part(NamedTuple):
    """So many bytes of a file from where it is read."""

    file: BufferedReader
    size: int


@contextmanager
def _opened(tensor: TensorProto, path: Path) -> Iterator[_Part]:
    """Open the part of a file that the data of a tensor of the model at `path` is.

    Raises:
        OSError, ValueError: There is none.
    """
    fields = _fields(tensor)
    location = fields.get("location", "")
    found = path if location == THIS_FILE else _find(fields, Path(os.path.realpath(path.parent)))
    with open_file(found) as file:
        size = os.fstat(file.fileno()).st_size
        offset = int(fields.get("offset") or 0)
        length = int(fields["length"]) if fields.get("length") else size - offset
        if offset < 0 or length < 0 or offset + length > size:
            raise ValueError(f"bytes {offset} to {offset + length} of {location!r}, which has {size}")
        file.seek(offset)
        yield _Part(file, length)


@contextmanager
def _telling(tensor: TensorProto, path: Path) -> Iterator[None]:
    """Raise what ends reading a tensor of the model at `path` as an error that says so."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise ModelFileError(
            f"external data of {path.name} cannot be read",
            where=f"tensor {tensor.name!r} of {path}",
            why=(error.strerror if isinstance(error, OSError) else None) or str(error),
            hint="keep the data files next to the model, without links to other folders",
        ) from error
