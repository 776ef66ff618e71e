"""`fusion tune`: searches for the fastest loops of the kernels of models, or learns how fast kernels are here."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fusion.cli.exit_codes import INTERRUPTED, OK
from fusion.cli.options import (
    add_bounds,
    add_database,
    add_json,
    add_shapes,
    add_verb,
    parse_bounds,
    parse_shapes,
    user_path,
)
from fusion.cli.output import show
from fusion.cli.progress import progress
from fusion.errors import OptionError
from fusion.options import check_threads, read_budget, read_tracker

if TYPE_CHECKING:
    from fusion.machine_tuning.tune import MachineTuning
    from fusion.model_tuning.tuning import Tuning

_BUDGET = "10m"
_BAR = 20
"""Characters."""


def add_parser(verbs: Any) -> None:
    """Add the verb."""
    parser = add_verb(
        verbs, "tune", "MODEL... | --machine ", "search for the fastest loops of models, by measuring them",
        "Measure points of all kernels of models in these, and keep what they take: `fusion compile MODEL --db FILE` "
        "takes the best. With --machine, measure kernels of drawn operators, and keep a model by which compilations "
        "choose loops. With --rpc and --key, measure on all servers of a TVM RPC tracker, each kind of CPU for itself, "
        "while points are built here. What was measured is kept after each round: Ctrl-C, SIGKILL or the loss of all "
        "servers costs no more than the round under way, and the next run goes on there. Several processes may write "
        "to a database, and a damaged line of it costs itself only.",
    )  # fmt: skip
    parser.add_argument("models", nargs="*", type=user_path, metavar="MODEL", help="ONNX file or Relay text")
    parser.add_argument("--machine", action="store_true", help="learn about this machine instead")
    parser.add_argument("--budget", default=_BUDGET, metavar="T", help=f"time: 90s, {_BUDGET} (default), 1h, or 0")
    add_shapes(parser)
    add_bounds(parser)
    parser.add_argument("--target", metavar="T", default="llvm", help='"llvm" (this machine, default)')
    parser.add_argument("--threads", type=int, metavar="N", help="of the kernels; all allowed CPUs by default")
    parser.add_argument("--rpc", metavar="HOST:PORT", help="tracker of TVM RPC, on whose servers points are measured")
    parser.add_argument("--key", metavar="K", help="of these servers")
    parser.add_argument("--precision", metavar="P", help="fp32 (default), bf16, bf16-or-fp32 or tf32")
    parser.add_argument("--report", type=user_path, metavar="FILE", help="write a page of what was measured (HTML)")
    add_database(parser, "database; by default that of the cache folder. The model of the machine lies beside it")
    add_json(parser)
    parser.set_defaults(verb=tune)


def tune(options: argparse.Namespace) -> int:
    """Measure, and print what came of it."""
    check_threads(options.threads)
    read_budget(options.budget)
    if not options.machine:
        return _tune_models(options)
    for name in ("models", "shape", "bounds", "report", "precision", "rpc", "key"):
        if getattr(options, name):
            raise OptionError(f"{name} has no use with --machine", why="that measures drawn operators, not models")
    return _tune_machine(options)


def _tune_models(options: argparse.Namespace) -> int:
    if not options.models:
        raise OptionError("nothing to tune is named", hint="write: fusion tune MODEL..., or fusion tune --machine")
    shapes, bounds = parse_shapes(options.shape), parse_bounds(options.bounds)
    read_tracker(options.rpc, options.key)
    from fusion import tune as tune_models

    said = ""

    def tell(tuning: Tuning) -> None:
        nonlocal said
        said = _bar_of_models(tuning)

    with progress("tuning", lambda: said):
        tuning = tune_models(
            options.models, options.target, shapes=shapes or None, threads=options.threads,
            precision=options.precision or "fp32", budget=options.budget, database=options.db, rpc=options.rpc,
            key=options.key, on_progress=tell, bounds=bounds,
        )  # fmt: skip
    lines = [*tuning.lines(), *_next_steps(options, tuning)]
    if options.report:
        tuning.explain_html(options.report)
        lines.append(f"the report is {options.report}")
    show("\n".join(lines), tuning.as_data(), options.json)
    return INTERRUPTED if tuning.interrupted else OK


def _next_steps(options: argparse.Namespace, tuning: Tuning) -> list[str]:
    """Return what to write next: the same command, or for each model one that takes what was found."""
    words = ["--db", tuning.path]
    for name, usual in (("target", "llvm"), ("threads", None), ("precision", None)):
        value = getattr(options, name)
        words += [f"--{name}", str(value)] if value != usual else []
    shapes = [word for shape in options.shape for word in ("--shape", shape)]
    shapes += [word for sizes in options.bounds or () for word in ("--bounds", sizes)]
    if tuning.interrupted:
        servers = [] if options.rpc is None else ["--rpc", options.rpc, "--key", options.key]
        return [f"to go on: fusion tune {shlex.join([*options.models, *words, *servers, *shapes])}"]
    named = shapes if len(options.models) == 1 else []
    where = "" if options.rpc is None else ", on a machine like the servers"
    return [f"to use it{where}: {shlex.join(['fusion', 'compile', model, *words, *named])}" for model in options.models]


def _bar_of_models(tuning: Tuning) -> str:
    done = [
        f"{model.name} {model.times.before * 1e3:.3f} -> {model.times.after * 1e3:.3f} ms"
        for model in tuning.models
        if model.times is not None
    ]
    expected = max((model.expected for model in tuning.models), default=0.0)
    parts = [f"{tuning.points} points", *done, f"{expected:.1%} more expected"]
    return f"{_bar(tuning.seconds, tuning.budget_s)} {', '.join(parts)}"


def _tune_machine(options: argparse.Namespace) -> int:
    from fusion import tune_machine

    said = ""

    def tell(state: MachineTuning) -> None:
        nonlocal said
        bar = _bar(state.seconds, state.budget_s)
        said = f"{bar} {state.kernels} kernels, {state.points} points"

    with progress("tuning", lambda: said):
        state = tune_machine(
            options.target, threads=options.threads, budget=options.budget, database=options.db, on_progress=tell
        )
    show("\n".join(_lines(state)), {**asdict(state), "path": str(state.path)}, options.json)
    return OK


def _bar(seconds: float, budget: float) -> str:
    done = min(1.0, seconds / budget) if budget else 1.0
    left = max(0.0, budget - seconds)
    time = f"{left / 60:.0f} min" if left >= 120 else f"{left:.0f} s"
    return f"[{'#' * round(_BAR * done):-<{_BAR}}] {time} left at most,"


def _lines(state: MachineTuning) -> list[str]:
    from tuning.machine_model import LEAST_KERNELS

    lines = [f"{state.kernels} kernels at {state.points} points, {state.new} of them measured in {state.seconds:.0f} s"]
    if state.busy:
        lines.append(f"{state.busy} kernels were measured beside other processes: the model is worse for it")
    if not state.learned:
        return [*lines, f"no model: it takes {LEAST_KERNELS} kernels; give it more time, --budget 10m"]
    if not state.errors:
        return [*lines, "a model was made, and was not seen to be better than the cost tables: they are used"]
    errors = ", ".join(f"{family} {error:.0%}" for family, error in sorted(state.errors.items()))
    return [*lines, f"a model is beside {state.path}, and used where it expects to gain more than its errors: {errors}"]
