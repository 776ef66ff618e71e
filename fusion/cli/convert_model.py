"""`fusion convert`: from a model to Relax source that people can read and keep, or to an ONNX file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import fusion
from fusion.cli.check_arguments import check_arguments
from fusion.cli.models import is_saved
from fusion.cli.options import add_json, add_model, add_params, add_shapes, add_verb, parse_sizes, user_path
from fusion.cli.output import show, signature
from fusion.cli.progress import progress
from fusion.errors import OptionError


def add_parser(verbs: Any) -> None:
    """Add the verb."""
    parser = add_verb(
        verbs, "convert", "MODEL [-o FILE.py] ", "write a model as Relax source, or as ONNX",
        "Write a model as TVMScript, a Python file, and its weights as NAME.safetensors beside it; or as an ONNX file.",
    )  # fmt: skip
    add_model(parser, "ONNX file or Relay text")
    parser.add_argument(
        "-o", "--output", type=user_path, metavar="FILE", help="NAME.py, the default beside the model, or NAME.onnx"
    )
    add_shapes(parser)
    add_params(parser)
    add_json(parser)
    parser.set_defaults(verb=convert_model)


def convert_model(options: argparse.Namespace) -> int:
    """Write the files and name them."""
    if is_saved(options.model):
        raise OptionError(f"{options.model} is a compiled module, which is no graph any more", hint="give its model")
    model = Path(options.model)
    output = Path(options.output or model.with_name(f"{model.stem}.py"))
    is_onnx = output.suffix == ".onnx"
    beside = output.with_name(f"{output.name}.data") if is_onnx else output.with_suffix(".safetensors")
    check_arguments(options, [output, beside])
    with progress(f"converting {model}"):
        done = fusion.convert(
            options.model, output, shapes=parse_sizes(options.shape, "convert") or None, params=options.params
        )
    inputs = ", ".join(spec.name for spec in done.inputs)
    weights = f", weights in {done.weights}" if done.weights else "" if is_onnx else ", without weights"
    data = {
        "output": str(done.path), "weights": None if done.weights is None else str(done.weights),
        "inputs": signature(done.inputs), "outputs": signature(done.outputs),
    }  # fmt: skip
    show(f"{done.path}: {'ONNX' if is_onnx else 'Relax source'}{weights}; inputs: {inputs}", data, options.json)
    return 0
