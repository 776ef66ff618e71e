"""Processes that write to one database at a time, some of which are killed at random moments.

Run as `python -m bench.tuning.writers FILE --writers 4 --records 1000`, or `--kill 200`: processes that write are
killed so often. It ends with 0 where the database opens each time and has all that was committed.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tuning.database import Database
from tuning.record import Record
from tuning.task import KERNEL, Environment, TuningTask

_AT_ONCE = 20
_NOWHERE = Environment('{"kind":"llvm"}', "a CPU", 2, {})


def _write(database: Database, writer: int, records: int) -> None:
    for start in range(0, records, _AT_ONCE):
        indices = range(start, min(start + _AT_ONCE, records))
        database.add([_record(f"{writer} {index}") for index in indices])


def _record(name: str) -> Record:
    """Return a record of a kernel of this name."""
    return Record(
        task=TuningTask(KERNEL, "conv2d", name, (("float32", (1, 13, 11, 20)),), _NOWHERE),
        point={"tile.height": 2},
        seconds=1e-3,
        spread=1e-5,
        runs=20,
        default_s=2e-3,
        wins=False,
        measured_at=1000.0,
    )


def _fork(work: Callable[..., object], *values: object) -> int:
    child = os.fork()
    if child == 0:
        try:
            work(*values)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    return child


def write(database: Database, writers: int, records: int) -> int:
    """Let `writers` processes write so many records each; returns 0 where all could."""
    children = [_fork(_write, database, writer, records) for writer in range(writers)]
    return max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)


def _write_and_tell(database: Database, turn: int, pipe: int) -> None:
    index = 0
    while True:
        database.add([_record(f"{turn} {index}")])
        os.write(pipe, b"x")  # it is committed
        index += 1


def kill(database: Database, times: int, seed: int) -> int:
    """Kill so many writers, each a while after it began; returns 0 where nothing committed is lost."""
    rng, committed = random.Random(seed), 0
    for turn in range(times):
        reader, writer = os.pipe()
        child = _fork(_write_and_tell, database, turn, writer)
        os.close(writer)
        time.sleep(rng.uniform(0.001, 0.06))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with os.fdopen(reader, "rb") as told:
            committed += len(told.read())
        found = len(database.lines())
        if not committed <= found <= committed + turn + 1:  # the last of each may be there too
            print(f"{committed} were committed and {found} are there after {turn + 1}")
            return 1
    print(f"{times} killed, {committed} records committed, seed {seed}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--writers", type=int, default=0)
    parser.add_argument("--records", type=int, default=1000)
    parser.add_argument("--kill", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    database = Database(options.file)
    if options.writers:
        return write(database, options.writers, options.records)
    return kill(database, options.kill, options.seed)


if __name__ == "__main__":
    sys.exit(main())
