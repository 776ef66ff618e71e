"""`python -m bench`: compare fusion with its peers on the zoo and write the table as Markdown and JSON."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import bench.peers
from bench import command, protocol, report, zoo
from bench.machine import measure_machine
from bench.peers.engine import Job
from bench.remote import EngineError
from bench.result import PRECISIONS, ComparisonResult
from fusion.errors import FusionError
from fusion.system.cpus import default_threads


def main() -> int:
    """Return 0 if every model ran and passed the gate, 1 if not, 2 for a wrong command line or without ONNX Runtime."""
    options = _parser().parse_args()
    models = options.models or zoo.available(zoo.BEYOND if options.beyond else zoo.ZOO)
    try:
        machine = measure_machine(options.threads)
        results = [_compare(name, options) for name in models]
    except (FusionError, EngineError) as error:
        print(error, file=sys.stderr)
        return 2
    table = report.zoo_table(results, machine)
    print(table)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "bench.md").write_text(table)
    (options.out / "bench.json").write_text(report.as_json(results, machine))
    print(f"written to {options.out / 'bench.md'} and {options.out / 'bench.json'}")
    return 0 if all(result.passed for result in results) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    known, further = (" ".join(zoo.names(which)) for which in (zoo.ZOO, zoo.BEYOND))
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument(
        "models", nargs="*", default=[], metavar="MODEL", help=f"of: {known} (default: all), or of: {further}"
    )
    chosen.add_argument("--beyond", action="store_true", help="all of the second set, which nobody tuned for")
    parser.add_argument("--peers", nargs="+", choices=bench.peers.names(), help="default: those of the precision")
    parser.add_argument("--precision", default="fp32", choices=tuple(PRECISIONS), help="of fusion and OpenVINO")
    parser.add_argument("--effort", default="fast", choices=("fast", "balanced"), help="of fusion")
    parser.add_argument("--rounds", type=int, default=protocol.ComparisonPlan.rounds)
    parser.add_argument("--seconds", type=float, default=protocol.ComparisonPlan.round_s, help="per round and engine")
    parser.add_argument("--threads", type=int, default=default_threads())
    parser.add_argument("--cache", type=Path, default=None, help="folder of the zoo (default: the user's cache)")
    parser.add_argument("--out", type=Path, default=Path("build") / "bench", help="folder of the report")
    return parser


def _compare(name: str, options: argparse.Namespace) -> ComparisonResult:
    model = zoo.make(name, options.cache)
    job = Job(
        model.path, model.shapes, options.threads, zoo_name=name, precision=options.precision, effort=options.effort
    )
    peers = options.peers or (bench.peers.STANDARD if options.precision == "fp32" else bench.peers.STANDARD_BF16)
    plan = protocol.ComparisonPlan(options.threads, options.rounds, options.seconds, tuple(peers))
    result = protocol.compare(job, plan, model.inputs, name)
    print(result.table(), end="\n\n", flush=True)
    return result


if __name__ == "__main__":
    command.run(main)
