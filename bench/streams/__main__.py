"""`python -m bench.streams`: random streams of shapes through models of the zoo, against other engines."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bench.peers
from bench import command, zoo
from bench.peers.engine import Arrays, Job
from bench.remote import EngineError
from bench.streams import report
from bench.streams.draw import TEMPLATES, draw_stream
from bench.streams.measure import StreamPlan, run_stream
from bench.streams.result import Shapes, StreamResult
from fusion.errors import FusionError, OptionError
from fusion.system.cpus import default_threads

_MODELS = ("bert_base_open", "minilm_open", "ppocr_rec")


@dataclass(frozen=True)
class _Part:
    """The report of one model.

    Attributes:
        how: What decided it.
        text, data: What was found.
    """

    how: Mapping[str, Any]
    text: str
    data: Mapping[str, Any]


def main() -> int:
    """Return 0 if fusion ran every stream and was right, 1 if not, 2 for wrong options or without ONNX Runtime."""
    options = _parser().parse_args()
    try:
        plan = _plan(options)
        parts = [_part(name, plan, options) for name in options.models or _MODELS]
    except (FusionError, EngineError) as error:
        print(error, file=sys.stderr)
        return 2
    text = "\n\n".join(part.text for part in parts) + "\n"
    command.write(options.out, "streams", text, json.dumps([part.data for part in parts], indent=1))
    return 0 if all(part.data["passed"] for part in parts) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.streams", description=__doc__)
    known, default = " ".join(TEMPLATES), " ".join(_MODELS)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of: {known} (default: {default})")
    parser.add_argument("--calls", type=int, default=200, metavar="N", help="in a stream")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the shapes")
    parser.add_argument("--statics", type=int, default=StreamPlan.statics, metavar="N", help="shapes compiled alone")
    parser.add_argument("--passes", type=int, default=StreamPlan.passes, metavar="N", help="how often streams come")
    parser.add_argument("--resume", action="store_true", help="keep what the folder has of models that were run so")
    parser.add_argument("--peers", nargs="+", choices=bench.peers.STANDARD, help="default: those that are installed")
    parser.add_argument("--threads", type=int, default=default_threads())
    parser.add_argument("--out", type=Path, default=Path("build") / "bench", help="folder of the report and streams")
    return parser


def _plan(options: argparse.Namespace) -> StreamPlan:
    """Return how streams are run.

    Raises:
        OptionError: `--statics` or `--passes` is no number of that.
    """
    if options.statics < 0:
        raise OptionError(f"{options.statics} shapes cannot be compiled alone", hint="use 0 or more")
    if options.passes < 1:
        raise OptionError(f"a stream cannot come {options.passes} times", hint="use 1 or more")
    peers = options.peers or [peer for peer in bench.peers.STANDARD if bench.peers.installed(peer)]
    return StreamPlan(options.threads, tuple(peers), statics=options.statics, passes=options.passes)


def _part(name: str, plan: StreamPlan, options: argparse.Namespace) -> _Part:
    """Return the report of the model `name`, which is kept in its folder for `--resume`; write its stream as `fusion
    bench --shapes` reads it."""
    calls = draw_stream(name, options.calls, options.seed)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / f"{name}.shapes.json").write_text(json.dumps(calls))
    path = options.out / f"streams.{name}.json"
    how = json.loads(json.dumps({"calls": calls, **dataclasses.asdict(plan)}))
    if options.resume and path.exists():
        kept = _Part(**json.loads(path.read_text()))
        if kept.how == how:
            return kept
    result = _run(name, plan, calls)
    part = _Part(how, report.text(result), result.as_dict())
    path.write_text(json.dumps(dataclasses.asdict(part)))
    print(f"{name}: {'right' if result.passed else 'WRONG'}", file=sys.stderr, flush=True)
    return part


def _run(name: str, plan: StreamPlan, calls: Sequence[Shapes]) -> StreamResult:
    model = zoo.make(name)

    def draw(shapes: Shapes, seed: int) -> Arrays:
        specs = [dataclasses.replace(spec, shape=shapes[spec.name]) for spec in model.specs]
        return model.recipe.inputs(specs, seed)

    return run_stream(Job(model.path, {}, plan.threads, zoo_name=name), plan, calls, draw, name)


if __name__ == "__main__":
    command.run(main)
