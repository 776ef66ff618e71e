"""Gets a compiled module from what a command names: a saved module, or a model to compile."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fusion
from fusion.cli.options import SAVED_SUFFIX, known_shapes, parse_bounds, parse_shapes
from fusion.cli.progress import progress
from fusion.dump import Dump
from fusion.errors import OptionError
from fusion.stages import Stages, stage

if TYPE_CHECKING:
    from fusion.compiled_module import CompiledModule
    from fusion.signature import TensorSpec

_COMPILE_ONLY = ("target", "effort", "threads", "precision", "strict", "backends", "no_cache", "params", "db", "bounds")


@dataclass(frozen=True)
class Opened:
    """A module, the seconds it took to get it, and what each stage of them took, where it was compiled."""

    module: CompiledModule
    seconds: float
    stages: Stages = field(default_factory=Stages)

    @property
    def cached(self) -> bool:
        """Whether the cache had what a model would be compiled to: then nothing was imported."""
        return not {("import",), ("open form",)} & self.stages.times.keys()


def is_saved(path: str) -> bool:
    """Whether `path` names a saved module rather than a model."""
    return Path(path).suffix == SAVED_SUFFIX


def is_relay(path: str) -> bool:
    """Whether `path` names the text of a Relay module."""
    from fusion.runtime import import_compiler

    import_compiler()
    from fusion.frontends.relay.source import is_relay_file

    return is_relay_file(path)


def open_module(
    path: str, options: argparse.Namespace, *, alone: bool = True, whole: bool = False, to_explain: bool = False
) -> Opened:
    """Load the saved module at `path`, or compile the model there as `options` say.

    Args:
        path: What the command names.
        options: As parsed; an option that is not given is None or False.
        alone: Whether the options are for `path` only. If not, a saved module leaves them to the other model, and so
            does one that is no Relay module with its parameters.
        whole: Whether a model that leaves dimensions open is compiled for all their sizes now, and not with a call.
        to_explain: Whether a saved module may be for another machine.

    Raises:
        FusionError: It cannot be read or compiled, or an option has no use with a saved module.
    """
    shapes = parse_shapes(options.shape)
    # By identity: 0 threads equal False.
    given: dict[str, Any] = {name: getattr(options, name, None) for name in _COMPILE_ONLY}
    given = {name: value for name, value in given.items() if value is not None and value is not False}
    if not alone and "params" in given and not is_relay(path):
        del given["params"]
    started, stages = time.perf_counter(), Stages()
    if is_saved(path):
        module = _load(path, given if alone else {}, shapes, to_explain)
    else:
        dump = getattr(options, "dump", None)
        with _dumping(dump), stages.watch(), progress(f"compiling {path}", lambda: stages.now):
            with stage("load the compiler"):
                compile = fusion.compile
            cache = not given.pop("no_cache", False) and dump is None
            measured, bounds = given.pop("db", None), parse_bounds(given.pop("bounds", None))
            module = compile(
                path, shapes=shapes or None, cache=cache, database=measured, wait=True, bounds=bounds, **given
            )
            if whole:
                module.finish()
    return Opened(module, time.perf_counter() - started, stages)


def _dumping(folder: str | None) -> AbstractContextManager[None]:
    """Return what writes the module between passes to `folder`, if one is named."""
    if folder is None:
        return nullcontext()
    dump = Dump(Path(folder))
    dump.begin()
    return dump.watch()


def _load(
    path: str, given: Mapping[str, Any], shapes: Mapping[str, tuple[int | str, ...]], to_explain: bool
) -> CompiledModule:
    for name in given:
        raise _useless(name, path)
    with progress(f"loading {path}"):
        # Here, not above: it imports what runs modules.
        from fusion.load_saved import load_to_explain

        module = load_to_explain(path) if to_explain else fusion.load(path)
    # A module that was saved with open dimensions takes the shapes of its random inputs.
    if len(known_shapes(shapes)) < len(shapes) or (shapes and not module.dynamic):
        raise _useless("shape", path)
    return module


def _useless(name: str, path: str) -> OptionError:
    return OptionError(
        f"--{name.replace('_', '-')} has no use with the saved module {path}",
        why="it was settled when the module was compiled",
        hint="leave it out, or give the model",
    )


def read_inputs_of(path: str) -> tuple[TensorSpec, ...]:
    """Return the inputs that the model at `path` declares, without compiling it.

    Raises:
        ModelFileError: It cannot be read.
        InvalidModelError: It breaks its format's rules.
    """
    from fusion.runtime import import_compiler

    import_compiler()
    from fusion.frontends import read_signature

    inputs, _ = read_signature(path)
    return inputs
