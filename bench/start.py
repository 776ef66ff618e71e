"""`python -m bench.start`: from starting Python to the first result of a saved module, beside ONNX Runtime."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import fusion
from bench import command, markdown, zoo
from bench.peers import OURS
from fusion.system.cpus import default_threads

STAGES = ("Python", "NumPy", "engine", "load", "first run", "second run")
"""Which end one after the other: the interpreter has started, both imports are done, the model is ready, it has run."""

_MODELS = ("bert_tiny", "mobilenet_v2", "resnet50")
# The clock is that of the whole machine; each program says when each stage ended.
_PROGRAM = """
import sys, time
ends = [time.monotonic()]
import numpy
ends.append(time.monotonic())
{engine}
ends.append(time.monotonic())
run = load(sys.argv[1], int(sys.argv[3]))
ends.append(time.monotonic())
inputs = dict(numpy.load(sys.argv[2]))
began = time.monotonic()
run(inputs)
first = time.monotonic()
run(inputs)
second = time.monotonic()
print([*ends, ends[-1] + first - began, ends[-1] + second - began])
"""
_OURS = """
import fusion
read = fusion.load
load = lambda path, threads: read(path).run
"""
_ONNXRUNTIME = """
import onnxruntime
def load(path, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda inputs: session.run(None, inputs)
"""


def main() -> int:
    """Return 0; a program that fails is an exception."""
    options = _parser().parse_args()
    rows, data = [], {}
    for name in options.models or _MODELS:
        for engine, seconds in measure(name, options.threads, options.rounds).items():
            cells = [f"{1e3 * value:.1f}" for value in seconds]
            rows.append((name, engine, *cells, f"{1e3 * sum(seconds[:-1]):.0f}"))
            data[f"{name} {engine}"] = dict(zip(STAGES, seconds, strict=True))
    table = markdown.table(("model", "engine", *STAGES, "to the first result"), rows)
    about = f"ms, medians of {options.rounds} processes, {options.threads} threads; files are in the page cache"
    command.write(options.out, "start", f"{about}\n\n{table}\n", json.dumps(data, indent=1))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.start", description=__doc__)
    known, default = " ".join(zoo.names()), " ".join(_MODELS)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of: {known} (default: {default})")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=default_threads())
    parser.add_argument("--out", type=Path, default=Path("build") / "bench", help="folder of the report")
    return parser


def measure(name: str, threads: int, rounds: int) -> dict[str, list[float]]:
    """Return the seconds that each stage takes, by engine: medians over so many processes of each, by turns."""
    model = zoo.make(name)
    with TemporaryDirectory(prefix="fusion-bench-") as folder:
        saved, inputs = Path(folder) / "module.fusion", Path(folder) / "inputs.npz"
        fusion.compile(model.path, shapes=model.shapes, threads=threads).save(saved)
        np.savez(inputs, **model.inputs(0))  # type: ignore[arg-type]
        programs = {OURS: (_OURS, saved), "onnxruntime": (_ONNXRUNTIME, Path(model.path))}
        taken: dict[str, list[list[float]]] = defaultdict(list)
        for _ in range(rounds + 1):
            for engine, (text, path) in programs.items():
                taken[engine].append(time_stages(text, path, inputs, threads))
    # The first process of each finds files that are not in memory, and sources without bytecode.
    return {
        engine: [statistics.median(stage) for stage in zip(*runs[1:], strict=True)] for engine, runs in taken.items()
    }


def time_stages(engine: str, model: Path, inputs: Path, threads: int) -> list[float]:
    """Return the seconds that each stage takes in a new process, of which `engine` is the text that defines `load`."""
    words = [sys.executable, "-c", _PROGRAM.format(engine=engine), str(model), str(inputs), str(threads)]
    # What is installed has its bytecode.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    started = time.monotonic()
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    ends = [started, *json.loads(done.stdout)]
    return [end - before for before, end in itertools.pairwise(ends)]


if __name__ == "__main__":
    command.run(main)
