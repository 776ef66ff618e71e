"""`fusion tune --machine`: learns how fast kernels are on this machine."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fusion.cli.exit_codes import OK
from fusion.cli.options import add_database, add_json, add_verb
from fusion.cli.output import show
from fusion.cli.progress import progress
from fusion.errors import OptionError
from fusion.options import check_threads, read_budget

if TYPE_CHECKING:
    from fusion.machine_tuning.tune import MachineTuning

_BUDGET = "10m"
_BAR = 20
"""Characters."""


def add_parser(verbs: Any) -> None:
    """Add the verb."""
    parser = add_verb(
        verbs, "tune", "--machine ", "learn how fast kernels are on this machine",
        "Measure kernels of drawn operators, and keep a model by which compilations choose loops. Ctrl-C keeps what "
        "was measured, and the next run goes on there.",
    )  # fmt: skip
    parser.add_argument("--machine", action="store_true", help="learn about this machine")
    parser.add_argument("--budget", default=_BUDGET, metavar="T", help=f"time: 90s, {_BUDGET} (default), 1h, or 0")
    parser.add_argument("--target", metavar="T", default="llvm", help='"llvm" (this machine, default)')
    parser.add_argument("--threads", type=int, metavar="N", help="of the kernels; all allowed CPUs by default")
    add_database(parser, "database; by default that of the cache folder. The model lies beside it")
    add_json(parser)
    parser.set_defaults(verb=tune)


def tune(options: argparse.Namespace) -> int:
    """Measure and learn; print what there is now."""
    if not options.machine:
        raise OptionError("nothing to tune is named", hint="write: fusion tune --machine")
    check_threads(options.threads)
    read_budget(options.budget)
    from fusion import tune_machine

    said = ""

    def tell(state: MachineTuning) -> None:
        nonlocal said
        said = _bar(state)

    with progress("tuning", lambda: said):
        state = tune_machine(
            options.target, threads=options.threads, budget=options.budget, database=options.db, on_progress=tell
        )
    show("\n".join(_lines(state)), {**asdict(state), "path": str(state.path)}, options.json)
    return OK


def _bar(state: MachineTuning) -> str:
    done = min(1.0, state.seconds / state.budget_s) if state.budget_s else 1.0
    left = max(0.0, state.budget_s - state.seconds)
    bar = "#" * round(_BAR * done)
    return f"[{bar:-<{_BAR}}] {state.kernels} kernels, {state.points} points, {left / 60:.0f} min left at most"


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
