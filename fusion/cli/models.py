"""Gets a compiled module from what a command names: a saved module, or a model to compile."""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import fusion
from fusion.cli.options import SAVED_SUFFIX, parse_shapes
from fusion.cli.progress import progress
from fusion.errors import OptionError

if TYPE_CHECKING:
    from fusion.module import CompiledModule


@dataclass(frozen=True)
class Opened:
    """A module and the seconds it took to get it."""

    module: CompiledModule
    seconds: float


def is_saved(path: str) -> bool:
    """Whether `path` names a saved module rather than a model."""
    return Path(path).suffix == SAVED_SUFFIX


def open_module(path: str, options: argparse.Namespace) -> Opened:
    """Load the saved module at `path`, or compile the model there as `options` say.

    Raises:
        FusionError: It cannot be read or compiled.
    """
    shapes = parse_shapes(options.shape)
    started = time.perf_counter()
    if is_saved(path):
        if shapes:
            raise OptionError(f"--shape has no use with the saved module {path}", hint="leave it out")
        with progress(f"loading {path}"):
            module = fusion.load(path)
    else:
        with progress(f"compiling {path}"):
            module = fusion.compile(
                path,
                options.target,
                shapes=shapes or None,
                effort=options.effort,
                threads=options.threads,
                strict=options.strict,
            )
    return Opened(module, time.perf_counter() - started)
