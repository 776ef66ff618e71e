"""The Relay modules in `texts/`, what TVM 0.17 computed of them, and the rule that made parameters and inputs."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

TEXTS = Path(__file__).parent / "texts"
NAMES = ("dcgan", "let_tuple", "mlp", "mobilenet_64", "resnet18_32", "squeezenet_64")


@dataclass(frozen=True)
class Recorded:
    """A module, its parameters and inputs, and what TVM 0.17's graph executor returned on LLVM."""

    text: str
    params: dict[str, np.ndarray]
    inputs: dict[str, np.ndarray]
    outputs: list[np.ndarray]


def recorded(name: str) -> Recorded:
    """Return the module `name`."""
    described = json.loads((TEXTS / f"{name}.json").read_text())
    made = {key: _made(key, *kind) for key, kind in described["main_params"].items()}
    inputs = {key: made.pop(key) for key in described["inputs"]}
    with np.load(TEXTS / f"{name}.npz") as saved:
        outputs = [saved[f"output_{index}"] for index in range(len(saved.files))]
    return Recorded((TEXTS / f"{name}.relay").read_text(), made, inputs, outputs)


def _made(name: str, shape: list[int], dtype: str) -> np.ndarray:
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    if "int" in dtype:
        return rng.integers(0, 10, shape).astype(dtype)
    array = rng.standard_normal(shape).astype(dtype) * 0.1
    if name.endswith(("_var", "variance")):
        array = np.abs(array) + 0.5
    return array.astype(dtype)
