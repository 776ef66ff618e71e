"""`python -m bench.streams`: random streams of shapes through models of the zoo, against other engines."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path

import bench.peers
from bench import command, zoo
from bench.peers.engine import Arrays, Job
from bench.remote import EngineError
from bench.streams import report
from bench.streams.draw import TEMPLATES, draw_stream
from bench.streams.measure import StreamPlan, run_stream
from bench.streams.result import Shapes, StreamResult
from fusion.cpus import default_threads
from fusion.errors import FusionError, OptionError

_MODELS = ("bert_base_open", "minilm_open", "ppocr_rec")


def main() -> int:
    """Return 0 if fusion ran every stream and was right, 1 if not, 2 for wrong options or without ONNX Runtime."""
    options = _parser().parse_args()
    results = []
    try:
        plan = _plan(options)
        for name in options.models or _MODELS:
            results.append(_run(name, plan, options))
            print(f"{name}: {'right' if results[-1].passed else 'WRONG'}", file=sys.stderr, flush=True)
    except (FusionError, EngineError) as error:
        print(error, file=sys.stderr)
        return 2
    text = "\n\n".join(report.text(result) for result in results) + "\n"
    command.write(options.out, "streams", text, report.as_json(results))
    return 0 if all(result.passed for result in results) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.streams", description=__doc__)
    known, default = " ".join(TEMPLATES), " ".join(_MODELS)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of: {known} (default: {default})")
    parser.add_argument("--calls", type=int, default=200, metavar="N", help="in a stream")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the shapes")
    parser.add_argument("--statics", type=int, default=StreamPlan.statics, metavar="N", help="shapes compiled alone")
    parser.add_argument("--peers", nargs="+", choices=bench.peers.STANDARD, help="default: those that are installed")
    parser.add_argument("--threads", type=int, default=default_threads())
    parser.add_argument("--out", type=Path, default=Path("build") / "bench", help="folder of the report and streams")
    return parser


def _plan(options: argparse.Namespace) -> StreamPlan:
    """Return how streams are run.

    Raises:
        OptionError: `--statics` is no number of shapes.
    """
    if options.statics < 0:
        raise OptionError(f"{options.statics} shapes cannot be compiled alone", hint="use 0 or more")
    peers = options.peers or [peer for peer in bench.peers.STANDARD if bench.peers.installed(peer)]
    return StreamPlan(options.threads, tuple(peers), statics=options.statics)


def _run(name: str, plan: StreamPlan, options: argparse.Namespace) -> StreamResult:
    """Run a stream of the model `name`, and write it as `fusion bench --shapes` reads it."""
    calls = draw_stream(name, options.calls, options.seed)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / f"{name}.shapes.json").write_text(json.dumps(calls))
    model = zoo.make(name)

    def draw(shapes: Shapes, seed: int) -> Arrays:
        specs = [dataclasses.replace(spec, shape=shapes[spec.name]) for spec in model.specs]
        return model.recipe.inputs(specs, seed)

    return run_stream(Job(model.path, {}, options.threads, zoo_name=name), plan, calls, draw, name)


if __name__ == "__main__":
    command.run(main)
