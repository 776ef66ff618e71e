"""What tuning has to survive, in full: killed writers, many of them, bad candidates, one database in two processes."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import fusion
from bench.markdown import table
from bench.tuning.bad_candidates import tune_bad_candidates
from bench.tuning.writers import kill, write
from bench.zoo import make
from tuning.database import Database

_KILLED, _WRITERS, _RECORDS = 200, 4, 1000
_MODEL, _BUDGET = "squeezenet", 30.0
_COMPILE = """
import sys
import fusion
model, database, path = sys.argv[1:]
fusion.compile(model, database=database, cache=False).save(path)
"""


@dataclass(frozen=True)
class Outcome:
    """Whether something holds, and what was seen."""

    what: str
    holds: bool
    seen: str


def outcomes(seed: int) -> Iterator[Outcome]:
    """Yield what came of each, in a folder that is gone then."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        yield _killed(folder, seed)
        yield _written(folder)
        yield _bad_candidates(folder)
        yield _same_code(folder)


def report(found: list[Outcome]) -> str:
    """Return it in Markdown."""
    rows = [[each.what, "holds" if each.holds else "does not hold", each.seen] for each in found]
    return "\n\n".join(["# What tuning survives", table(["what", "", "seen"], rows)]) + "\n"


def _killed(folder: Path, seed: int) -> Outcome:
    with contextlib.redirect_stdout(io.StringIO()) as said:
        code = kill(Database(folder / "killed"), _KILLED, seed)
    return Outcome(f"{_KILLED} writers killed at random moments", code == 0, said.getvalue().strip())


def _written(folder: Path) -> Outcome:
    database = Database(folder / "written")
    code = write(database, _WRITERS, _RECORDS)
    lines = len(set(database.lines()))
    holds = code == 0 and lines == _WRITERS * _RECORDS
    return Outcome(f"{_WRITERS} writers of {_RECORDS} records each", holds, f"{lines} records")


def _bad_candidates(folder: Path) -> Outcome:
    job = tune_bad_candidates(Database(folder / "bad"))
    made = ", ".join(f"{count} that {kind}" for kind, count in sorted(job.made.items()) if kind)
    left = f"left: {job.left or 'no file'}, {job.running or 'no process'}"
    return Outcome("bad candidates", job.holds, f"{made}; {job.failed} failed, {job.measured} measured; {left}")


def _same_code(folder: Path) -> Outcome:
    model = str(make(_MODEL).path)
    tuned = fusion.tune(model, budget=_BUDGET, database=folder / "tuned")
    made = []
    for seed in ("1", "2"):
        path = folder / f"{seed}.fusion"
        arguments = [sys.executable, "-c", _COMPILE, model, str(folder / "tuned"), str(path)]
        subprocess.run(arguments, check=True, env={**os.environ, "PYTHONHASHSEED": seed})
        made.append(path.read_bytes())
    seen = f"{_MODEL}, {tuned.points} points measured, modules of {len(made[0])} and {len(made[1])} bytes"
    return Outcome("the same database and sources, two processes: the same bytes", made[0] == made[1], seen)
