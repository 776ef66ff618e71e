"""`fusion bench --shapes`: calls of many shapes, in the order of a file, against the peers with open dimensions."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import fusion
from fusion.cli.exit_codes import OK, RESULTS_DIFFER
from fusion.cli.models import read_inputs_of
from fusion.cli.options import parse_bounds
from fusion.cli.output import show
from fusion.cli.progress import progress
from fusion.cli.shape_stream import Shapes, read_stream, where
from fusion.errors import ExecutionError, FusionError, OptionError
from fusion.signature import TensorSpec, complete_shapes, require_dims, require_static
from fusion.system.memory import check_memory

if TYPE_CHECKING:
    from bench.peers.engine import Arrays


def bench_stream(options: argparse.Namespace, peers: Sequence[str] | None) -> int:
    """Print what the stream took; 1 where the results are not right."""
    # Here, not above: bench imports onnx and more, which `fusion --help` should not.
    import bench.peers
    from bench import inputs
    from bench.peers.engine import Job
    from bench.remote import EngineError
    from bench.streams import report
    from bench.streams.measure import StreamPlan, run_stream
    from fusion.system.cpus import default_threads

    chosen = [peer for peer in bench.peers.STANDARD if bench.peers.installed(peer)] if peers is None else peers
    for peer in chosen:
        if not bench.peers.takes_any_shape(peer):
            raise OptionError(
                f"the peer {peer!r} runs no stream of shapes", why="it needs every shape beforehand",
                hint=f"--peers takes {', '.join(bench.peers.STANDARD)} there",
            )  # fmt: skip
    bounds = parse_bounds(options.bounds)
    calls = _read_calls(options, bounds)
    path, threads = Path(options.model).resolve(), options.threads or default_threads()
    specs = inputs.read_specs(path, calls[0])

    def draw(shapes: Shapes, seed: int) -> Arrays:
        return inputs.draw([dataclasses.replace(spec, shape=shapes[spec.name]) for spec in specs], seed)

    with progress(f"running {len(calls)} calls of {options.model}"):
        try:
            named = None if options.backends is None else tuple(options.backends)
            job = Job(path, {}, threads, bounds=bounds, backends=named)
            result = run_stream(job, StreamPlan(threads, tuple(chosen)), calls, draw, path.stem)
        except EngineError as error:
            raise _reason(options, calls[0], error) from error
    show(report.text(result), result.as_dict(), options.json)
    return OK if result.passed else RESULTS_DIFFER


def _reason(options: argparse.Namespace, shapes: Shapes, error: Exception) -> FusionError:
    """Return why there is no result: what `fusion compile` says of the model, if it refuses it too."""
    try:
        bounds = parse_bounds(options.bounds)
        fusion.compile(
            options.model, shapes=shapes, threads=options.threads, bounds=bounds, backends=options.backends
        )
    except FusionError as refused:
        return refused
    return ExecutionError("the stream cannot be run", why=str(error), hint="check the shapes of that call")


def _read_calls(options: argparse.Namespace, bounds: Mapping[str, range]) -> list[Shapes]:
    """Return the shapes of all inputs for each call of the file.

    Raises:
        FusionError: The file does not hold such calls, or one of them does not fit the model or `bounds`.
    """
    inputs = read_inputs_of(options.model)
    calls = read_stream(options.shapes)
    return [_complete(inputs, call, bounds, where(options.shapes, place)) for place, call in enumerate(calls)]


def _complete(inputs: Sequence[TensorSpec], call: Shapes, bounds: Mapping[str, range], place: str) -> Shapes:
    # Here, not above: these import the compiler, which `fusion --help` should not.
    from fusion.api import bind_shapes
    from fusion.tensors import numpy_dtype

    try:
        bound = bind_shapes(inputs, complete_shapes(inputs, call))
        require_static(bound)
        require_dims(bound, bounds)
        for spec in bound:
            check_memory(spec.extents, numpy_dtype(spec.dtype).itemsize, f"input {spec.name!r}")
    except FusionError as error:
        error.where = f"{place}, {error.where}" if error.where else place
        raise
    return {spec.name: spec.extents for spec in bound}
