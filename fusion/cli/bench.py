"""`fusion bench`: compile a model, check it, and time it against the peers that are installed."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

import fusion
from fusion.cli.bench_relay import bench_relay
from fusion.cli.bench_stream import bench_stream
from fusion.cli.check_arguments import check_arguments
from fusion.cli.exit_codes import OK, RESULTS_DIFFER
from fusion.cli.models import is_relay, is_saved, read_inputs_of
from fusion.cli.options import (
    add_backends,
    add_bounds,
    add_json,
    add_model,
    add_params,
    add_shapes,
    add_verb,
    parse_bounds,
    parse_sizes,
    user_path,
)
from fusion.cli.output import show
from fusion.cli.progress import progress
from fusion.errors import FusionError, InternalError, OptionError
from fusion.signature import complete_shapes, require_dims, require_static

_ROUNDS = 9


def add_parser(verbs: Any) -> None:
    """Add the verb."""
    parser = add_verb(
        verbs, "bench", "MODEL ", "check a model and time it against the peers",
        "Make inputs, compile, check, and time against the peers installed, each in a process of its own.",
    )  # fmt: skip
    add_model(parser, "ONNX file or Relay text")
    add_shapes(parser)
    add_bounds(parser)
    parser.add_argument("--shapes", type=user_path, metavar="FILE", help="JSON: the shapes of many calls, run in order")
    add_params(parser)
    add_backends(parser)
    parser.add_argument("--threads", type=int, metavar="N", help="of every engine; all allowed CPUs by default")
    parser.add_argument("--rounds", type=int, metavar="N", help=f"how often each engine is timed, {_ROUNDS} by default")
    parser.add_argument("--peers", help="comma-separated: onnxruntime,openvino,torch,tvm; the first two by default")
    add_json(parser)
    parser.set_defaults(verb=bench)


def bench(options: argparse.Namespace) -> int:
    """Print the comparison; 1 where the results are not right."""
    if is_saved(options.model):
        raise OptionError(f"{options.model} is a saved module, which the peers cannot run", hint="give the model")
    _check_use_of_shapes(options)
    options.rounds = _ROUNDS if options.rounds is None else options.rounds
    if options.rounds < 1:
        raise OptionError(f"--rounds {options.rounds} is not a number of rounds", hint="use 1 or more")
    peers = None if options.peers is None else options.peers.split(",")
    _check_peers(peers or ())
    check_arguments(options)
    if is_relay(options.model):
        if options.shapes is not None:
            raise OptionError("--shapes is for ONNX models", why="no other engine reads Relay", hint="leave it out")
        return bench_relay(options)
    if options.params:
        raise OptionError("--params is for Relay modules", hint="leave it out")
    if options.shapes is not None:
        return bench_stream(options, peers)
    shapes = _all_shapes(options)
    # Here, not above: bench imports onnx and more, which `fusion --help` should not.
    from bench.protocol import compare_model
    from bench.remote import EngineError

    with progress(f"measuring {options.model}"):
        try:
            result = compare_model(
                options.model, shapes, options.threads, options.rounds, peers, backends=options.backends
            )
        except EngineError as error:
            raise _reason(options, shapes, error) from error
    show(result.table(), result.as_dict(), options.json)
    return OK if result.passed else RESULTS_DIFFER


def _check_use_of_shapes(options: argparse.Namespace) -> None:
    for name in ("shape", "rounds") if options.shapes is not None else ():
        if getattr(options, name):
            raise OptionError(
                f"--{name} has no use with --shapes", why="the file says what is run", hint="leave one of them out"
            )


def _check_peers(names: Sequence[str]) -> None:
    import bench.peers

    for name in names:
        if name not in bench.peers.names():
            raise OptionError(f"there is no peer {name!r}", hint=f"--peers takes {', '.join(bench.peers.names())}")


def _all_shapes(options: argparse.Namespace) -> dict[str, tuple[int, ...]]:
    """Return the shapes that are given, and those that follow from them.

    Raises:
        ShapeError: A shape is still open, or contradicts the model.
    """
    inputs = read_inputs_of(options.model)
    # Here, not above: this imports the compiler, which `fusion --help` should not.
    from fusion.api import bind_shapes

    shapes = complete_shapes(inputs, parse_sizes(options.shape, "bench"))
    bound = bind_shapes(inputs, shapes)
    require_static(bound)
    require_dims(bound, parse_bounds(options.bounds))
    return shapes


def _reason(options: argparse.Namespace, shapes: Mapping[str, tuple[int, ...]], error: Exception) -> FusionError:
    """Return why there is no comparison: what `fusion compile` says of the model, if it refuses it too."""
    try:
        fusion.compile(options.model, shapes=shapes, threads=options.threads, backends=options.backends)
    except FusionError as refused:
        return refused
    return InternalError("the comparison cannot be made", why=str(error), hint="name other --peers, or report it")
