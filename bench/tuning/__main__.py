"""`python -m bench.tuning`: what the cost tables lose against the best points of kernels, and what a learned model
does; with `--search`, what the best of few measured points loses, by the order in which they are chosen; with
`--chains`, the same of kernels with several anchors, also beginning with the tiles of their parts; with `--robust`,
what tuning has to survive; with `--servers`, what servers of TVM RPC measure in a second."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from backends.machine_limits import MachineLimits
from bench import command
from bench.machine import measure_machine
from bench.tuning import by_parts, replay_report, report, robust, served
from bench.tuning.drawn_chains import drawn_chains, tiles_of_parts
from bench.tuning.measure import measured
from bench.tuning.regret import by_machine_models, by_models, judged
from bench.tuning.thin import with_whole_space
from fusion import context
from fusion.context import Context
from fusion.machine_tuning.drawn import drawn_kernels
from fusion.system.cpus import default_threads
from tuning.workloads import draw_workloads

_ALL = 1 << 30
"""Points: of a space all."""


def main() -> int:
    """Return 0; with `--robust`, 1 where something does not hold."""
    options = _parser().parse_args()
    if options.robust:
        return _robust(options)
    if options.servers:
        return _served(options)
    ctx = context.resolve(options.target, threads=options.threads)
    machine = measure_machine(options.threads)
    options.out.mkdir(parents=True, exist_ok=True)
    if options.search:
        return _search(options, ctx, machine)
    if options.chains:
        return _chains(options, ctx, machine)
    kernels = list(drawn_kernels(draw_workloads(options.seed, options.count), ctx, options.points))
    found = list(judged(kernels, measured(kernels, ctx, options.out / f"points-{options.seed}.jsonl")))
    orders = {
        "tables": [kernel.by_tables for kernel in found],
        "a model for all": by_models(found, families=False),
        "a model for each family": by_models(found, families=True),
        "fusion tune --machine": by_machine_models(found),
    }
    command.write(options.out, "tuning", report.text(found, orders, machine), report.as_json(found, orders, machine))
    return 0


def _robust(options: argparse.Namespace) -> int:
    found = list(robust.outcomes(options.seed))
    command.write(options.out, "robust", robust.report(found), json.dumps([asdict(each) for each in found], indent=1))
    return int(not all(each.holds for each in found))


def _served(options: argparse.Namespace) -> int:
    found = served.rates()
    command.write(options.out, "servers", served.report(found), json.dumps([asdict(each) for each in found], indent=1))
    return 0


def _search(options: argparse.Namespace, ctx: Context, machine: MachineLimits) -> int:
    drawn = drawn_kernels(draw_workloads(options.seed, options.count), ctx, _ALL)
    kernels = [with_whole_space(kernel, options.points) for kernel in drawn]
    found = list(judged(kernels, measured(kernels, ctx, options.out / f"spaces-{options.seed}.jsonl")))
    text, data = replay_report.of(found, machine)
    command.write(options.out, "search", text, data)
    return 0


def _chains(options: argparse.Namespace, ctx: Context, machine: MachineLimits) -> int:
    chains = drawn_chains(options.seed, options.count, ctx, options.points)
    kernels = [chain.whole for chain in chains]
    for chain in chains:
        kernels += [part for part, tile in zip(chain.parts, tiles_of_parts(chain), strict=True) if part and tile]
    found = measured(kernels, ctx, options.out / f"chains-{options.seed}.jsonl")
    text, data = by_parts.report(by_parts.judged_chains(chains, found), machine)
    command.write(options.out, "chain-parts", text, data)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.tuning", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of the operators that are drawn")
    parser.add_argument("--count", type=int, default=40, help="operators")
    parser.add_argument("--points", type=int, default=60, help="of each space beside the default, at most")
    parser.add_argument(
        "--search", action="store_true", help="whole spaces, thinned to so many points; what was measured is replayed"
    )
    parser.add_argument(
        "--chains", action="store_true", help="drawn kernels with several anchors, and their parts: the same"
    )
    parser.add_argument("--robust", action="store_true", help="kill writers, tune bad candidates, compare code")
    parser.add_argument("--servers", action="store_true", help="measure on one and on two servers of TVM RPC here")
    parser.add_argument("--threads", type=int, default=default_threads())
    parser.add_argument("--target", default="llvm", help='"llvm -mcpu=haswell" runs the code of another CPU here')
    parser.add_argument(
        "--out", type=Path, default=Path("build") / "bench" / "tuning",
        help="folder of the report, and of what was measured: the next run measures what is missing",
    )  # fmt: skip
    return parser


if __name__ == "__main__":
    command.run(main)
