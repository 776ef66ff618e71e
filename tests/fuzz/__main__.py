"""`python -m tests.fuzz KIND --minutes N`: try cases until the time is over; exit code 1 if something was found."""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.fuzz.case import Outcome
from tests.fuzz.findings import Findings, line, write
from tests.fuzz.guard import SIDES, preload
from tests.fuzz.kinds import MAKERS, answer
from tests.fuzz.worker import Job, try_all

FOLDER = Path("build") / "fuzz"


def main() -> int:
    """Return 0 if nothing was found, else 1."""
    options = _options()
    findings, started = Findings(), time.monotonic()

    def report(outcome: Outcome) -> None:
        if findings.add(outcome):
            print(line(outcome), flush=True)
            if outcome.case is not None:
                write(outcome, options.out)

    if options.guard:
        preload(options.out)
    try_all(answer, _jobs(options, started), options.jobs, report)
    total = sum(findings.verdicts.values())
    print(f"{total} cases in {time.monotonic() - started:.0f} s\n{findings.summary()}")
    return 1 if findings.seen else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("kind", choices=sorted(MAKERS))
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0, help="the first seed; others follow one by one")
    parser.add_argument("--count", type=int, help="how many cases at most")
    parser.add_argument("--jobs", type=int, default=1, help="workers at a time")
    parser.add_argument(
        "--guard", choices=sorted(SIDES), default="", help="put every array beside an inaccessible page"
    )
    parser.add_argument("--out", type=Path, default=FOLDER, help="where findings are written")
    return parser.parse_args()


def _jobs(options: argparse.Namespace, started: float) -> Iterator[Job]:
    seeds = itertools.count(options.seed)
    for seed in seeds if options.count is None else itertools.islice(seeds, options.count):
        if time.monotonic() - started > 60 * options.minutes:
            return
        yield Job(options.kind, seed, guard=options.guard)


if __name__ == "__main__":
    sys.exit(main())
