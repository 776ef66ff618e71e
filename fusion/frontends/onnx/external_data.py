"""Reads the tensors that a model keeps in files beside it, and in no other place."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import onnx
from onnx import TensorProto

from fusion.errors import LimitError, ModelFileError
from fusion.files import open_file
from fusion.frontends.onnx.parts import tensors
from fusion.memory import usable_memory


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


def read_external_data(model: onnx.ModelProto, path: Path) -> None:
    """Put the data of all tensors of `model` that lie in other files into `model`, which was read from `path`.

    Raises:
        ModelFileError: A file is missing, too short, no regular one, or outside the model's folder.
        LimitError: They have more bytes than there is memory.
    """
    left = usable_memory()
    folder = Path(os.path.realpath(path.parent))
    for tensor in tensors(model):
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        try:
            data = _read(tensor, folder, left)
        except (OSError, ValueError) as error:
            raise ModelFileError(
                f"external data of {path.name} cannot be read",
                where=f"tensor {tensor.name!r} of {path}",
                why=(error.strerror if isinstance(error, OSError) else None) or str(error),
                hint="keep the data files next to the model, without links to other folders",
            ) from error
        tensor.raw_data = data
        left -= len(data)
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


def _read(tensor: TensorProto, folder: Path, left: int) -> bytes:
    fields = _fields(tensor)
    location = fields.get("location", "")
    with open_file(_find(fields, folder)) as file:
        size = os.fstat(file.fileno()).st_size
        offset = int(fields.get("offset") or 0)
        length = int(fields["length"]) if fields.get("length") else size - offset
        if offset < 0 or length < 0 or offset + length > size:
            raise ValueError(f"bytes {offset} to {offset + length} of {location!r}, which has {size}")
        if length > left:
            raise LimitError(
                f"the external data does not fit the {usable_memory():,} bytes of memory of this process",
                where=f"tensor {tensor.name!r}",
            )
        file.seek(offset)
        return file.read(length)
