"""What tells one model from another: a checksum of all that importing it reads."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import tvm

from fusion.cache import DiskCache
from fusion.cache.file_digests import FileState, sum_up
from fusion.frontends.onnx.external_data import external_files
from fusion.frontends.onnx.load import Data, load_model
from fusion.frontends.relay.syntax import RelayModel
from fusion.frontends.torch import TorchModel, program_files, weight_bytes
from fusion.module.archive import checksum
from fusion.passes.lift_weights import lift_weights
from fusion.stages import stage
from fusion.system.files import open_file
from fusion.tensors import byte_view

_CHUNK = 4 << 20
_LOCATION = b"location"
"""What names the file of a tensor that lies in another, in each of ONNX's formats."""
_EXTERNAL = "external"
"""Behind the digest of a file that may name others."""


@dataclass(frozen=True)
class ModelDigest:
    """A model as it was at one time.

    Attributes:
        digest: Models with equal ones are the same.
        files: What it was read from.
        whole: Whether that holds of all models, and not only of one and the same object at two times.
        weights: Digest of the weights alone, of a torch program: torch may fail to write that at one time and not at
            another, as while a thread of the user's writes one.
    """

    digest: str
    files: tuple[FileState, ...]
    whole: bool = True
    weights: str = ""

    def is_of(self, other: ModelDigest) -> bool:
        """Return whether both are of one state of the same object."""
        if self.whole != other.whole:
            return self.weights == other.weights
        return self.digest == other.digest

    def current(self) -> bool:
        """Return whether its files are still as they were."""
        return not self.changed_files()

    def changed_files(self) -> tuple[Path, ...]:
        """Return those of its files that were written to, replaced or removed since."""
        return tuple(file.path for file in self.files if not file.current())


@stage("look into the cache")
def digest_model(model: Any, place: DiskCache | None = None) -> ModelDigest:
    """Return the digest of `model`, as `open_model` returned it; files that have not changed since they were read last
    are looked up in the cache at `place`.

    Raises:
        Exception: It cannot be read, or holds what has no bytes, which each frontend says in classes of its own.
    """
    if isinstance(model, TorchModel):
        return _digest_torch(model)
    files: list[FileState] = []
    return ModelDigest(_join(_parts(model, files, place)), tuple(files))


def _digest_torch(model: TorchModel) -> ModelDigest:
    weights = _join((name, checksum(data)) for name, data in weight_bytes(model.program))
    origin = f"torch {sys.modules['torch'].__version__} {model.signature}"
    try:
        files = [(name, checksum(data)) for name, data in program_files(model.program)]
    except Exception:
        # torch writes no program that returns a class of the user's. Its graph does not change, its weights may.
        return ModelDigest(weights, (), whole=False, weights=weights)
    return ModelDigest(_join([(origin, weights), *files]), (), weights=weights)


def _join(parts: Iterable[tuple[str, str]]) -> str:
    return checksum("\n".join(f"{name!r} {digest}" for name, digest in parts).encode())


def _parts(model: Any, files: list[FileState], place: DiskCache | None) -> Iterator[tuple[str, str]]:
    """Yield name and digest of each part of `model`; add to `files` what they are about to be read from."""
    if isinstance(model, str | Path):
        yield from _onnx_file_parts(Path(model), files, place)
    elif isinstance(model, onnx.ModelProto):
        yield "onnx", checksum(model.SerializeToString(deterministic=True))
    elif isinstance(model, RelayModel):
        yield f"relay {model.module.origin}", checksum(model.module.text.encode(errors="surrogatepass"))
        for name, array in model.params.items():
            yield f"{name} {array.dtype} {array.shape}", checksum(np.ascontiguousarray(array).tobytes())
    elif isinstance(model, tvm.IRModule):
        # As text, weights take ten times as long.
        without, weights = lift_weights(model)
        yield "relax", checksum(tvm.ir.save_json(without).encode())
        for weight in weights:
            yield "weight", checksum(byte_view(weight).data)
    else:
        raise TypeError(f"no parts are known of a {type(model).__name__}")


def _onnx_file_parts(path: Path, files: list[FileState], place: DiskCache | None) -> Iterator[tuple[str, str]]:
    digest, _, found = _digest_file(path, files, place).partition(" ")
    yield f"onnx {path.suffix}", digest
    if found:  # in a few; reading the others once more would take longer than their digest
        for other in external_files(load_model(path, Data.NONE), path):
            yield f"external {other.name}", _digest_file(other, files, place).partition(" ")[0]


def _digest_file(path: Path, files: list[FileState], place: DiskCache | None) -> str:
    """Return what `_read` does; add to `files` what is about to be read."""
    state = FileState.of(path)
    files.append(state)
    return sum_up(state, partial(_read, size=state.size), place)


def _read(path: Path, *, size: int, wanted: bytes = _LOCATION) -> str:
    """Return the sha256 of the first `size` bytes of a file, at about 1.3 GB/s, and behind it a word where they hold
    the bytes `wanted`. Some of the files in /proc, which say that they are empty, have no end."""
    total, found, end, left = hashlib.sha256(), False, b"", size
    with open_file(path) as file:
        while chunk := file.read(min(_CHUNK, left)):
            left -= len(chunk)
            total.update(chunk)
            found = found or wanted in chunk or wanted in end + chunk[: len(wanted)]
            end = (end + chunk[-len(wanted) :])[-len(wanted) :]
    return f"{total.hexdigest()} {_EXTERNAL}" if found else total.hexdigest()
