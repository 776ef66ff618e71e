"""`fusion compare`: two programs for a model on the same inputs."""

from __future__ import annotations

import argparse
import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from fusion.cli.check_arguments import check_arguments
from fusion.cli.difference import difference
from fusion.cli.exit_codes import OK, RESULTS_DIFFER
from fusion.cli.models import is_relay, is_saved, open_module, read_inputs_of
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
from fusion.errors import OptionError, UnsupportedOperatorError
from fusion.system.files import read_file

if TYPE_CHECKING:
    from fusion.compiled_module import CompiledModule

_ENGINES = ("fusion", "onnxruntime")
_TOLERANCE = 1e-3
"""What the float64 gate of bench allows where it has only ONNX Runtime to go by."""


def add_parser(verbs: Any) -> None:
    """Add the verb."""
    parser = add_verb(
        verbs, "compare", "MODEL [OTHER] ", "compare the results of two models or engines",
        "Run two models, or one on two engines, on the same inputs. Exit code 1 if the results differ.",
    )  # fmt: skip
    add_model(parser)
    parser.add_argument(
        "other", nargs="?", type=user_path, metavar="OTHER", help="what to compare with; MODEL itself by default"
    )
    parser.add_argument(
        "--with", dest="engine", choices=_ENGINES, metavar="ENGINE", help=f"what runs OTHER: {' or '.join(_ENGINES)}"
    )
    parser.add_argument(
        "--tolerance", type=float, default=_TOLERANCE, metavar="TOL", help=f"largest relative error ({_TOLERANCE})"
    )
    add_inputs(parser)
    add_compile_options(parser)
    add_json(parser)
    parser.set_defaults(verb=compare)


def compare(options: argparse.Namespace) -> int:
    """Print the error of each output; 1 where one is above the tolerance."""
    engine = options.engine or ("fusion" if options.other else "onnxruntime")
    other = options.other or options.model
    check_arguments(options)
    _check(engine, other, options)
    given = read_inputs(options.input)
    # Here, not above: what follows imports what runs modules.
    from fusion.cli.feed import complete_inputs, random_values

    alone = engine == "onnxruntime" or is_saved(other)
    module = open_module(options.model, options, alone=alone).module
    inputs = complete_inputs(module, given, known_shapes(parse_shapes(options.shape)), options.seed)
    with random_values(module, given):
        actual = module.run(inputs)
        expected = _run_other(other, engine, module, inputs, options)
    if len(actual) != len(expected):
        raise OptionError(f"{options.model} has {len(actual)} outputs and {other} has {len(expected)}")
    found = {name: difference(value, base) for (name, value), base in zip(actual.items(), expected, strict=True)}
    same = all(difference.within(options.tolerance) for difference in found.values())
    verdict = f"the results {'agree' if same else 'DIFFER'} (tolerance {options.tolerance:g})"
    text = "\n".join([*(f"{name}: {distance}" for name, distance in found.items()), verdict])
    outputs = {name: asdict(distance) for name, distance in found.items()}
    show(text, {"same": same, "tolerance": options.tolerance, "outputs": outputs}, options.json)
    return OK if same else RESULTS_DIFFER


def _check(engine: str, other: str, options: argparse.Namespace) -> None:
    if not 0 <= options.tolerance < math.inf:
        raise OptionError(f"--tolerance {options.tolerance:g} is no tolerance", hint="give a number, 0 or more")
    if engine == "onnxruntime" and is_saved(other):
        raise OptionError(
            f"ONNX Runtime cannot run the saved module {other}",
            hint=f"name the model it was made from: fusion compare {options.model} MODEL.onnx --with onnxruntime",
        )
    if engine == "onnxruntime" and is_relay(other):
        raise OptionError(
            f"ONNX Runtime cannot run the Relay module {other}",
            hint=f"name the ONNX model it was made from: fusion compare {options.model} MODEL.onnx --with onnxruntime",
        )
    if engine == "fusion" and not options.other:
        raise OptionError("there is nothing to compare with", hint="name a second model, or use --with onnxruntime")


def _run_other(
    path: str, engine: str, module: CompiledModule, inputs: dict[str, np.ndarray], options: argparse.Namespace
) -> list[np.ndarray]:
    """Run `path` on `inputs` by position: the same model exported twice may name its inputs differently."""
    arrays = [inputs[spec.name] for spec in module.inputs]
    if engine == "fusion":
        return list(open_module(path, options, alone=is_saved(options.model)).module(*arrays))
    from backends.registry import model_runner

    runner = model_runner()
    read_inputs_of(path)
    try:
        subgraph = runner.register(path, read_file(path), options.threads or 0)
    except UnsupportedOperatorError as error:
        raise UnsupportedOperatorError(
            f"ONNX Runtime, which is compared with, cannot run {path}",
            why=error.why,
            hint="name another model to compare with; fusion run runs this one",
        ) from error
    if len(subgraph.inputs) != len(arrays):
        raise OptionError(f"{path} takes {len(subgraph.inputs)} inputs and {options.model} takes {len(arrays)}")
    return runner.run(subgraph, arrays)
