"""What the programs of the bench have in common: how long they measure, where reports go, how they end."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from fusion.system.cpus import default_threads

# What a shell reports for a program that SIGPIPE ended.
_READER_GONE = 128 + signal.SIGPIPE


def add_timing(parser: argparse.ArgumentParser, seconds: float, each: str) -> None:
    """Add the options of how long to measure each of something, on how many threads, and where the report goes."""
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=seconds, help=f"per round and {each}")
    parser.add_argument("--threads", type=int, default=default_threads())
    parser.add_argument("--out", type=Path, default=Path("build") / "bench", help="folder of the report")


def write(out: Path, name: str, text: str, as_json: str) -> None:
    """Write a report to a folder, and print it."""
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.md").write_text(text)
    (out / f"{name}.json").write_text(as_json)
    print(text)
    print(f"written to {out}: {name}.md, {name}.json")


def run(main: Callable[[], int]) -> NoReturn:
    """Exit with what `main` returns, or quietly where nobody reads its output any more (`... | head`)."""
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more at exit (docs.python.org/3/library/signal.html#note-on-sigpipe).
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = _READER_GONE
    sys.exit(code)
