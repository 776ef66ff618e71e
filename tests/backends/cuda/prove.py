"""`python -m tests.backends.cuda.prove [MODEL ...]`: all that is proved of CUDA kernels without a device, step by step.

The steps are commands, one after another: what NVRTC and ptxas make of each model for each architecture (`resources`),
which kernels of a model wait for which (`order_zoo`), the tests of kernels on the emulator, of sectors, banks and
published pairs (pytest, file by file), and whole models on the emulator (`emulate_zoo`). What each says is kept in a
folder, so that a run that was ended goes on where it was: a step that passed is not run again until sources change, and
a kernel is compiled again when its text has. Ends with 1 where a step fails, or has not passed in its time.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import zoo
from fusion.report.table import format_table
from tests.backends.cuda import emulate_zoo, toolkit
from tests.backends.cuda.emulator import emulate
from tests.backends.cuda.resources import PRECISIONS

_ROOT = Path(__file__).parents[3]
_SOURCES = ("backends", "bench", "fusion", "partition", "tests/backends")
_HEADER = ("step", "result", "seconds")


@dataclass(frozen=True)
class Step:
    """A command that ends with 0 where what it proves holds: a module, with its arguments."""

    name: str
    words: tuple[str, ...]


@dataclass(frozen=True)
class Proofs:
    """What steps said of the sources as they are.

    Attributes:
        folder: Has a file for each step that passed.
        limit: Of the seconds that a step may take.
    """

    folder: Path
    limit: float

    def run(self, step: Step) -> tuple[str, str, str]:
        """Return the row of one step, which is not run where it passed before; print what it says."""
        passed = self.folder / f"{step.name.replace(' ', '.')}.txt"
        if passed.exists():
            print(passed.read_text(), end="", flush=True)
            return step.name, "passed before", ""
        started = time.monotonic()
        try:
            command = [sys.executable, "-m", *step.words]
            done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=self.limit, check=False)
        except subprocess.TimeoutExpired:
            return step.name, "not in its time", f"{self.limit:.0f}"
        print(done.stdout, end="", flush=True)
        if done.returncode:
            print(done.stderr, file=sys.stderr, flush=True)
        else:
            passed.write_text(done.stdout)
        return step.name, "FAILED" if done.returncode else "passed", f"{time.monotonic() - started:.0f}"


def main() -> int:
    """Return 0 if all steps pass."""
    options = _parser().parse_args()
    reasons = [reason for reason in (toolkit.WHY_NOT, emulate.WHY_NOT) if reason]
    if reasons:
        print("; ".join(reasons), file=sys.stderr)
        return 1
    folder = options.folder / _sources_key()
    folder.mkdir(parents=True, exist_ok=True)
    proofs = Proofs(folder, options.limit)
    models = options.models or [*zoo.names(), *(zoo.names(zoo.BEYOND) if options.beyond else ())]
    kernels = options.folder.absolute() / "kernels"
    rows = [proofs.run(step) for step in _steps(models, options.precision or PRECISIONS, kernels)]
    print(format_table(_HEADER, rows))
    return 0 if all(result.startswith("passed") for _, result, _ in rows) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.backends.cuda.prove", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="of any set of the zoo (default: the first)")
    parser.add_argument("--beyond", action="store_true", help="the models of the other zoo too")
    parser.add_argument("--precision", action="append", choices=PRECISIONS, help="several times (default: all)")
    parser.add_argument("--folder", type=Path, required=True, help="where results are kept")
    parser.add_argument("--limit", type=float, default=1800, metavar="SECONDS", help="of a step (default: 1800)")
    return parser


def _steps(models: list[str], precisions: Sequence[str], kernels: Path) -> Iterator[Step]:
    for precision in precisions:
        for model in models:
            words = ("tests.backends.cuda.resources", model, "--precision", precision, "--folder", str(kernels))
            yield Step(f"{model} {precision}", words)
    yield Step("orders", ("tests.backends.cuda.order_zoo", *models))
    for path in sorted(Path(__file__).parent.rglob("test_*.py")):
        yield Step(path.stem, ("pytest", "-q", "-p", "no:cacheprovider", str(path.relative_to(_ROOT))))
    for model in emulate_zoo.SMALLEST:
        yield Step(f"{model} emulated", ("tests.backends.cuda.emulate_zoo", model))


def _sources_key() -> str:
    """Return what changes with the sources that steps run."""
    made = hashlib.sha256()
    for folder in _SOURCES:
        for path in sorted((_ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".cuh", ".cc", ".h"):
                made.update(path.relative_to(_ROOT).as_posix().encode() + path.read_bytes())
    return made.hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())
