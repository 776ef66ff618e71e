"""Checks what a command was given before anything large is imported: a wrong word costs a fraction of a second."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from backends.registry import libraries
from fusion.cli.options import SAVED_SUFFIX, input_file, parse_bounds, parse_shapes
from fusion.cli.shape_stream import read_stream
from fusion.errors import OptionError, SavedFileError
from fusion.foreign_files import check_model_file
from fusion.options import check_backends, check_effort, check_precision, check_threads
from fusion.system.files import check_file


def check_arguments(options: argparse.Namespace, outputs: Sequence[Path] = ()) -> None:
    """Raise where a file, a shape or another option of a verb is wrong, or one of `outputs` cannot be written.

    Raises:
        ModelFileError, SavedFileError: A model is missing, cannot be read, or is of another kind by its first bytes.
        OptionError: An option has a value that is not allowed, a file of an option is missing or not what it
            should be, or an output is an input, a folder, or in a place where this user cannot write.
    """
    given = {name: value for name, value in vars(options).items() if value is not None}
    parse_shapes(given.get("shape", ()))
    parse_bounds(given.get("bounds", ()))
    if "shapes" in given:
        read_stream(given["shapes"])
    check_threads(given.get("threads"))
    if "effort" in given:
        check_effort(given["effort"])
    if "precision" in given:
        check_precision(given["precision"])
    if "backends" in given:
        check_backends(given["backends"], libraries())
    arrays = [input_file(text) for text in given.get("input", ())]
    models = [given[name] for name in ("model", "other") if name in given]
    sources = [*models, *arrays, *([given["params"]] if "params" in given else [])]
    for model in models:
        _check_model(model)
    for output in outputs:
        _refuse_overwriting(output, sources)
        _check_output(output)


def _check_model(path: str) -> None:
    if Path(path).suffix != SAVED_SUFFIX:
        # The file of a Relay module, which begins as any text may, passes.
        check_model_file(Path(path))
        return
    try:
        check_file(path)
    except OSError as error:
        raise SavedFileError(
            f"cannot open {path!r}", why=error.strerror or str(error), hint="check the path"
        ) from error


def _refuse_overwriting(output: Path, sources: Sequence[str]) -> None:
    for source in sources:
        if output.exists() and Path(source).exists() and output.samefile(source):
            raise OptionError(
                f"the output {output} is the input {source}, which would be lost", hint="name another file with -o"
            )


def _check_output(path: Path) -> None:
    """Raise unless a file can be made beside `path`, and `path` is free or a regular file."""
    hint = "name another file with -o"
    if path.is_dir():
        raise OptionError(f"the output {path} is a directory", hint=f"name a file in it: {path / 'NAME'}")
    if path.exists() and not path.is_file():
        raise OptionError(f"the output {path} is no regular file", hint=hint)
    try:
        # By doing it: permissions do not tell of read-only file systems, nor of full ones.
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name[:100]}.", dir=path.parent)
        os.close(handle)
        Path(temporary).unlink()
        if path.exists():
            path.open("ab").close()
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise OptionError(
            f"cannot write {path}", why=why, hint="check that the folder exists and can be written"
        ) from error
