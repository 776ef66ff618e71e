"""`python -m bench.streams.statics`: the form for all sizes beside a static form of each of many shapes of a stream.

Compiling these takes minutes, in which the machine may do something else; comparing the calls of both does not. So
`compile` writes the modules that a folder lacks, `time` runs those that it has, by turns in one process, and `costs`
compiles both kinds, in new processes by turns.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import command, zoo
from bench.peers import OURS
from bench.peers.engine import Arrays, Compiled, Job
from bench.remote import EngineError, Worker
from bench.result import MEBIBYTE
from bench.serving.report import quantile
from bench.streams.against_static import TURNS_S, StaticPlan, costs_of
from bench.streams.choose import by_size, spread
from bench.streams.draw import TEMPLATES, draw_stream
from bench.streams.measure import StreamPlan
from bench.streams.result import Costs, StaticForm, describe
from fusion.errors import FusionError
from fusion.system.cpus import default_threads

_FILE = "model.fusion"
"""As `bench.peers.ours` names it."""
_APART = 8
_COMPILED_S = 3600.0
"""Beside others: it is not timed."""


def main() -> int:
    """Return 0, 2 for wrong options or where ours failed."""
    options = _parser().parse_args()
    try:
        plan = _plan(options)
        options.folder.mkdir(parents=True, exist_ok=True)
        _DO[options.what](plan, options)
    except (FusionError, EngineError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.streams.statics", description=__doc__)
    parser.add_argument("what", choices=tuple(_DO), help="what is done")
    parser.add_argument("model", metavar="MODEL", help=f"of: {' '.join(TEMPLATES)}")
    parser.add_argument("--calls", type=int, default=200, metavar="N", help="in the stream")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of its shapes")
    parser.add_argument("--most", type=int, default=40, metavar="N", help="shapes, spread over the sizes of the stream")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="of costs")
    parser.add_argument("--threads", type=int, default=default_threads())
    parser.add_argument("--folder", type=Path, default=Path("build") / "statics", help="of the modules")
    return parser


def _plan(options: argparse.Namespace) -> StaticPlan:
    calls, model = draw_stream(options.model, options.calls, options.seed), zoo.make(options.model)

    def draw(place: int) -> Arrays:
        specs = [dataclasses.replace(spec, shape=calls[place][spec.name]) for spec in model.specs]
        return model.recipe.inputs(specs, place)

    job = Job(model.path, {}, options.threads, zoo_name=options.model)
    return StaticPlan(job, calls, draw, options.most, StreamPlan.call_s)


def _folders(plan: StaticPlan, options: argparse.Namespace) -> Iterator[tuple[int, Path]]:
    """Yield the place in the stream of each shape that is compared, and the folder of its module."""
    for place in spread(by_size(plan.calls), plan.most):
        yield place, options.folder / f"{options.model}.{options.calls}.{options.seed}.{place}"


def _middle(plan: StaticPlan) -> int:
    """Return the place in the stream of the shape of middle size."""
    return spread(by_size(plan.calls), 1)[0]


def _open_folder(options: argparse.Namespace) -> Path:
    return Path(options.folder, f"{options.model}.open")


def _compile(plan: StaticPlan, options: argparse.Namespace) -> None:
    """Write the modules that the folder lacks: those of every eighth shape first, so that what is there is spread over
    the sizes whenever this ends."""
    middle, folders = _middle(plan), [*_folders(plan, options)]
    shapes = (
        (place, folder, dataclasses.replace(plan.job, shapes=plan.calls[place]))
        for first in range(_APART)
        for place, folder in folders[first::_APART]
    )
    for place, folder, job in ((middle, _open_folder(options), plan.job), *shapes):
        if not (folder / _FILE).exists():
            folder.mkdir(exist_ok=True)
            with Worker(OURS, job.threads) as worker:
                worker.ask(_COMPILED_S, "open", job)
                worker.ask(_COMPILED_S, "call", plan.draw(place))
                worker.ask(_COMPILED_S, "save", folder)


def _time(plan: StaticPlan, options: argparse.Namespace) -> None:
    """Compare the calls of the modules that the folder has, smallest inputs first, and write what was found there."""
    forms = []
    with Worker(OURS, plan.job.threads) as worker:
        worker.ask(plan.call_s, "load", plan.job, _open_folder(options))
        for place, folder in _folders(plan, options):
            path = folder / _FILE
            if path.exists():
                job = dataclasses.replace(plan.job, shapes=plan.calls[place], compiled=Compiled(path, 0.0))
                form = StaticForm(place, *worker.ask(plan.call_s, "beside", job, plan.draw(place), TURNS_S))
                forms.append(form)
                print(
                    f"{describe(plan.calls[place])}: {form.open_s * 1e3:.3f} {form.static_s * 1e3:.3f} ms, "
                    f"{form.ratio:.3f}",
                    flush=True,
                )
    (options.folder / f"{options.model}.json").write_text(json.dumps([dataclasses.asdict(form) for form in forms]))
    ratios = [form.ratio for form in forms]
    print(
        f"{options.model}, {len(ratios)} shapes: geometric mean {statistics.geometric_mean(ratios):.3f}, "
        f"95th percentile {quantile(ratios, 0.95):.3f}, worst {max(ratios):.3f}"
    )


def _costs(plan: StaticPlan, options: argparse.Namespace) -> None:
    """Compile the form for all sizes and the one for a shape of middle size, by turns."""
    place = _middle(plan)
    static = dataclasses.replace(plan.job, shapes=plan.calls[place])
    found: list[tuple[Costs, ...]] = []
    for _ in range(options.rounds):
        with TemporaryDirectory(prefix="fusion-bench-") as folder:
            found.append(tuple(costs_of(plan, job, Path(folder), [place]) for job in (plan.job, static)))
    print(f"{options.model}, {describe(plan.calls[place])}")
    for name in ("compile_s", "compiling_bytes", "running_bytes", "file_bytes"):
        unit = 1.0 if name == "compile_s" else MEBIBYTE
        rounds = [[getattr(costs, name) / unit for costs in both] for both in found]
        ratio = statistics.median(opened / static for opened, static in rounds)
        each = "  ".join(f"{opened:.2f} {static:.2f}" for opened, static in rounds)
        print(f"{name}: {each}; ratio {ratio:.3f}")


_DO = {"compile": _compile, "time": _time, "costs": _costs}

if __name__ == "__main__":
    command.run(main)
