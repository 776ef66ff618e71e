"""`fusion compile`: from a model to a saved module."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

from fusion.cli.check_arguments import check_arguments
from fusion.cli.models import is_saved, open_module
from fusion.cli.options import (
    SAVED_SUFFIX,
    add_backends,
    add_compile_options,
    add_dump,
    add_json,
    add_model,
    add_timing,
    add_verb,
    user_path,
)
from fusion.cli.output import show, signature
from fusion.cli.progress import progress
from fusion.cli.timing import timing_data, timing_table
from fusion.errors import OptionError
from fusion.signature import require_static


def add_parser(verbs: Any) -> None:
    """Add the verb."""
    parser = add_verb(verbs, "compile", "MODEL [-o FILE] ", "compile a model and save it")
    add_model(parser, "ONNX file or Relay text")
    parser.add_argument(
        "-o", "--output", type=user_path, metavar="FILE", help="saved module; beside the model by default"
    )
    add_compile_options(parser)
    add_backends(parser)
    add_timing(parser)
    add_dump(parser)
    add_json(parser)
    parser.set_defaults(verb=compile_model)


def compile_model(options: argparse.Namespace) -> int:
    """Compile and save; print where to and how long it took."""
    if is_saved(options.model):
        raise OptionError(f"{options.model} is a compiled module already", hint="give the model")
    model = Path(options.model)
    output = Path(options.output or model.parent / f"{model.stem}{SAVED_SUFFIX}")
    check_arguments(options, [output])
    opened = open_module(options.model, options, whole=True)
    if not opened.module.specializations:
        require_static(opened.module.inputs, "; ".join(opened.module.under_way))
    with progress(f"saving {output}"):
        opened.module.save(output)
    size = output.stat().st_size
    settings = opened.module.settings
    how = "taken from the cache" if opened.cached else "compiled"
    machine = settings.device or f"{settings.threads} threads"
    text = f"{output}: {size / 1e6:.1f} MB, {how} in {opened.seconds:.1f} s for {machine}"
    placement = opened.module.placement
    text += f"\nplacement: {placement}"
    data = {
        "output": str(output), "bytes": size, "compile_s": opened.seconds, "cached": opened.cached,
        "inputs": signature(opened.module.inputs), "outputs": signature(opened.module.outputs),
        "placement": dataclasses.asdict(placement),
    }  # fmt: skip
    if options.timing:
        text += f"\n{timing_table(opened.stages)}"
        data["timing"] = timing_data(opened.stages)
    show(text, data, options.json)
    return 0
