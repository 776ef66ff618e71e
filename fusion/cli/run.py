"""`fusion run`: one run of a model, on given or random inputs."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fusion.cli.check_arguments import check_arguments
from fusion.cli.models import open_module
from fusion.cli.options import (
    add_compile_options,
    add_inputs,
    add_json,
    add_model,
    add_verb,
    known_shapes,
    parse_shapes,
    read_inputs,
    user_path,
)
from fusion.cli.output import show
from fusion.errors import OptionError


def add_parser(verbs: Any) -> None:
    """Add the verb."""
    parser = add_verb(
        verbs, "run", "MODEL ", "run a model once", "Run a model once, on random inputs if none are given."
    )
    add_model(parser)
    parser.add_argument("-o", "--output", type=user_path, metavar="FILE.npz", help="where to write the outputs")
    add_inputs(parser)
    add_compile_options(parser)
    add_json(parser)
    parser.set_defaults(verb=run)


def run(options: argparse.Namespace) -> int:
    """Run, write the outputs if asked to, and print what they look like."""
    check_arguments(options, [Path(options.output)] if options.output else [])
    given = read_inputs(options.input)
    shapes = parse_shapes(options.shape)
    if not given and not known_shapes(shapes):
        _refuse_names(shapes)
    # Here, not above: what follows imports what runs modules.
    from fusion.cli.feed import complete_inputs, random_values

    module = open_module(options.model, options).module
    inputs = complete_inputs(module, given, known_shapes(shapes), options.seed)
    started = time.perf_counter()
    with random_values(module, given):
        outputs = module.run(inputs)
    seconds = time.perf_counter() - started
    if options.output:
        _write(Path(options.output), outputs)
    lines = [f"{name}: {_describe(value)}" for name, value in outputs.items()]
    data = {"outputs": {name: _summary(value) for name, value in outputs.items()}, "seconds": seconds}
    show("\n".join([*lines, f"first run: {seconds * 1e3:.2f} ms"]), data, options.json)
    return 0


def _refuse_names(shapes: Mapping[str, Sequence[int | str]]) -> None:
    """Refuse names in all shapes, before a model is compiled: there are no sizes that they may follow from."""
    for name, shape in shapes.items():
        dims = ",".join(map(str, shape))
        raise OptionError(
            f"--shape {name}={dims} leaves open how large the random input is",
            why=f"{', '.join(repr(dim) for dim in shape if isinstance(dim, str))} stays open",
            hint=f"give numbers, or the input itself with --input {name}=FILE.npy",
        )


def _write(path: Path, outputs: dict[str, np.ndarray]) -> None:
    try:
        with path.open("wb") as file:
            # NumPy's stub takes keywords for its own option.
            np.savez(file, **outputs)  # type: ignore[arg-type]
    except OSError as error:
        raise OptionError(f"cannot write {path}", why=error.strerror or str(error)) from error


def _describe(value: Any) -> str:
    summary = _summary(value)
    text = f"{summary['dtype']}{summary['shape']}"
    return (
        f"{text} min {summary['min']:.6g} mean {summary['mean']:.6g} max {summary['max']:.6g}"
        if "min" in summary
        else text
    )


def _summary(value: Any) -> dict[str, Any]:
    """Shape and dtype, and the range of numbers; an output may also be a list of arrays, or none."""
    if not isinstance(value, np.ndarray):
        return {"shape": [], "dtype": type(value).__name__}
    summary: dict[str, Any] = {"shape": list(value.shape), "dtype": value.dtype.name}
    if value.size and value.dtype.kind not in "OUSTc":
        wide = value.astype(np.float64)
        summary |= {"min": float(wide.min()), "mean": float(wide.mean()), "max": float(wide.max())}
    return summary
