"""The engines that are compared: fusion and its peers, one small file each, imported only in that engine's process."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util

from bench.peers.engine import Engine
from fusion.errors import OptionError

OURS, OURS_FP32 = "fusion", "fusion-fp32"
FORM = "fusion:"
"""Begins the names of engines that are forms of ours: see `bench.peers.forms`."""
# Engine name -> module here, and the package it needs.
_ENGINES = {
    OURS: ("bench.peers.ours", "fusion"),
    OURS_FP32: ("bench.peers.ours_fp32", "fusion"),
    "onnxruntime": ("bench.peers.ort", "onnxruntime"),
    "onednn": ("bench.peers.onednn", "onednn-cpu-iomp"),
    "openvino": ("bench.peers.ov", "openvino"),
    "openvino-throughput": ("bench.peers.ov_throughput", "openvino"),
    "torch": ("bench.peers.inductor", "torch"),
    "tvm": ("bench.peers.plain_tvm", "tvm"),
    "metaschedule": ("bench.peers.metaschedule", "psutil"),
}
# The peers every speed claim is made against; the others are slower and take long to compile.
STANDARD = ("onnxruntime", "openvino")
_ANY_SHAPE = (OURS, *STANDARD)
# Those of precision "bf16": the one peer that has it, and what it gains over float32.
STANDARD_BF16 = (OURS_FP32, "openvino")


def names() -> list[str]:
    """Return the names of all peers."""
    return [name for name in _ENGINES if name != OURS]


def installed(name: str) -> bool:
    """Return whether the package that the engine `name` needs is installed.

    Raises:
        OptionError: There is no such engine.
    """
    if name.startswith(FORM):
        return True
    if name not in _ENGINES:
        raise OptionError(f"there is no peer {name!r}", hint=f"one of {', '.join(names())}")
    package = _ENGINES[name][1]
    return importlib.util.find_spec(package) is not None or _is_wheel(package)


def _is_wheel(package: str) -> bool:
    """Return whether a wheel of that name is installed, as one without a module of Python."""
    try:
        importlib.metadata.distribution(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def takes_any_shape(name: str) -> bool:
    """Return whether the engine `name` runs a model with its dimensions left open."""
    return name in _ANY_SHAPE


def compiles_ahead(name: str) -> bool:
    """Return whether the engine `name` compiles in one process and runs in another."""
    return name == OURS


def engine(name: str) -> Engine:
    """Return the engine `name`; imports its library."""
    if name.startswith(FORM):
        form: Engine = importlib.import_module("bench.peers.forms").PeerForm.of(name.removeprefix(FORM))
        return form
    module: Engine = importlib.import_module(_ENGINES[name][0]).ENGINE
    return module
