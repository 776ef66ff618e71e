"""Outputs in float64, kept in the bench's folder: they take minutes for some models, and never change."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from functools import cache as once
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
from onnx.external_data_helper import uses_external_data
from safetensors import SafetensorError
from safetensors.numpy import load, save

from bench import cache
from bench.reference.evaluate import evaluate
from fusion.module.replace_file import replace_file

_FOLDER = "references"
_PACKAGES = ("onnx", "numpy")


def kept_or_evaluated(
    path: Path, inputs: Mapping[str, np.ndarray], folder: Path | None = None
) -> dict[str, np.ndarray]:
    """Return what `evaluate` returns, from an earlier evaluation of the same file on the same inputs by the same code
    where there was one.

    Args:
        folder: In place of the bench's.

    Raises:
        NoReferenceError: The evaluator has no such operator, or failed in one.
    """
    kept = cache.folder(folder) / _FOLDER / f"{_key(path, inputs)}.safetensors"
    with suppress(OSError, SafetensorError):  # none yet, or a damaged one
        read: dict[str, np.ndarray] = load(kept.read_bytes())
        return read
    found = evaluate(path, inputs)
    data = save({name: np.ascontiguousarray(value) for name, value in found.items()})
    kept.parent.mkdir(parents=True, exist_ok=True)
    replace_file(kept, lambda file: file.write(data))
    return found


def _key(path: Path, inputs: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256(_evaluator())
    digest.update(path.read_bytes())
    for location in sorted(_external_files(path)):
        digest.update((path.parent / location).read_bytes())
    for name, value in sorted(inputs.items()):
        digest.update(f"{name} {value.dtype} {value.shape}\n".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    return digest.hexdigest()


def _external_files(path: Path) -> set[str]:
    """Return the files beside `path` that hold constants of it."""
    tensors = onnx.load(path, load_external_data=False).graph.initializer
    entries = (entry for tensor in tensors if uses_external_data(tensor) for entry in tensor.external_data)
    return {entry.value for entry in entries if entry.key == "location"}


@once
def _evaluator() -> bytes:
    """Return what tells this evaluator from others."""
    digest = hashlib.sha256(" ".join(map(version, _PACKAGES)).encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    return digest.digest()
