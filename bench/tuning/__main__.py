"""`python -m bench.tuning`: what the cost tables lose against the best points of kernels, and what a learned model
does."""

from __future__ import annotations

import argparse
from pathlib import Path

from bench import command
from bench.machine import measure_machine
from bench.tuning import report
from bench.tuning.measure import measured
from bench.tuning.regret import by_machine_models, by_models, judged
from fusion import context
from fusion.cpus import default_threads
from fusion.machine_tuning.drawn import drawn_kernels
from tuning.workloads import draw_workloads


def main() -> int:
    """Return 0."""
    options = _parser().parse_args()
    ctx = context.resolve(options.target, threads=options.threads)
    machine = measure_machine(options.threads)
    kernels = list(drawn_kernels(draw_workloads(options.seed, options.count), ctx, options.points))
    options.out.mkdir(parents=True, exist_ok=True)
    found = list(judged(kernels, measured(kernels, ctx, options.out / f"points-{options.seed}.jsonl")))
    orders = {
        "tables": [kernel.by_tables for kernel in found],
        "a model for all": by_models(found, families=False),
        "a model for each family": by_models(found, families=True),
        "fusion tune --machine": by_machine_models(found),
    }
    command.write(options.out, "tuning", report.text(found, orders, machine), report.as_json(found, orders, machine))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.tuning", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of the operators that are drawn")
    parser.add_argument("--count", type=int, default=40, help="operators")
    parser.add_argument("--points", type=int, default=60, help="of each space beside the default, at most")
    parser.add_argument("--threads", type=int, default=default_threads())
    parser.add_argument("--target", default="llvm", help='"llvm -mcpu=haswell" runs the code of another CPU here')
    parser.add_argument(
        "--out", type=Path, default=Path("build") / "bench" / "tuning",
        help="folder of the report, and of what was measured: the next run measures what is missing",
    )  # fmt: skip
    return parser


if __name__ == "__main__":
    command.run(main)
