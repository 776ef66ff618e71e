"""`python -m bench.replay --against TREE`: show what this tree makes of the zoo's models other than another one does;
`--record FOLDER` only writes what this one makes of them."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench import command, zoo
from bench.replay.compare import differences
from bench.replay.record import record, write
from fusion import context

_LINES = 40


def main() -> int:
    """Return 0 if nothing differs, 1 if something does."""
    options = _parser().parse_args()
    models = options.models or [*zoo.available(zoo.ZOO), *zoo.available(zoo.BEYOND)]
    if options.record is not None:
        _record(models, options, options.record)
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        before, after = Path(scratch) / "before", Path(scratch) / "after"
        for tree, folder in ((options.against, before), (Path.cwd(), after)):
            _record_in(tree.resolve(), folder, models, options)
        return _show(before, after, options.lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.replay", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="of any set of the zoo (default: the first two)")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--against", type=Path, metavar="TREE", help="a checkout of this project")
    what.add_argument("--record", type=Path, metavar="FOLDER", help="where to write a folder for each model")
    parser.add_argument("--target", help="as of fusion.compile (default: this machine)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precision", default="fp32", choices=("fp32", "bf16"))
    parser.add_argument("--lines", type=int, default=_LINES, help="of each difference that are shown")
    return parser


def _record(models: list[str], options: argparse.Namespace, folder: Path) -> None:
    target = [options.target] if options.target else []
    ctx = context.resolve(*target, threads=options.threads, precision=options.precision, cache=False)
    for name in models:
        started = time.perf_counter()
        texts = record(zoo.make(name), ctx)
        write(texts, folder / name)
        print(f"{name}: {len(texts)} texts in {time.perf_counter() - started:.1f} s", file=sys.stderr, flush=True)


def _record_in(tree: Path, folder: Path, models: list[str], options: argparse.Namespace) -> None:
    """Let `tree` record `models`: its own program knows its own insides."""
    print(f"recording in {tree}", file=sys.stderr, flush=True)
    arguments = [f"--record={folder}", f"--threads={options.threads}", f"--precision={options.precision}", *models]
    arguments += [f"--target={options.target}"] if options.target else []
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    subprocess.run([sys.executable, "-m", "bench.replay", *arguments], cwd=tree, env=environment, check=True)


def _show(before: Path, after: Path, lines: int) -> int:
    count = 0
    for difference in differences(before, after):
        count += 1
        print("\n".join([str(difference), *(f"    {line}" for line in difference.lines(lines))]))
    models = sum(1 for path in after.iterdir())
    print(f"{count} differences in {models} models")
    return 1 if count else 0


if __name__ == "__main__":
    command.run(main)
