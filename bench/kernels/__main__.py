"""`python -m bench.kernels`: each matmul, convolution, normalisation, softmax, attention and pooling shape of the zoo
outside of branches alone, or memory-bound regions, against the peers and the roofline."""

from __future__ import annotations

import argparse
import sys

import bench.peers
from bench import command, protocol, zoo
from bench.kernels import report
from bench.kernels.collect import collect
from bench.kernels.measure import measure
from bench.kernels.regions import regions
from bench.machine import measure_machine


def main() -> int:
    """Return 0 if every case passed the gate, else 1."""
    options = _parser().parse_args()
    machine = measure_machine(options.threads)
    plan = protocol.ComparisonPlan(options.threads, options.rounds, options.seconds, tuple(options.peers), checks=1)
    every = regions() if options.regions else collect(options.models or zoo.available())
    cases = [case for case in every if options.only in case.name]
    rated = []
    for number, measured in enumerate(measure(cases, plan), 1):
        rated.append(report.rate(measured, machine))
        print(f"{number}/{len(cases)} {measured.case.name}: ratio {rated[-1].ratio}", file=sys.stderr, flush=True)
    name = "regions" if options.regions else "kernels"
    command.write(options.out, name, report.text(rated, machine), report.as_json(rated, machine))
    report.plot(rated, machine, options.out / f"{name}.svg")
    return 0 if all(case.measured.result.passed for case in rated) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.kernels", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of: {' '.join(zoo.names())} (default: all)")
    parser.add_argument("--regions", action="store_true", help="memory-bound regions instead of the zoo's operators")
    parser.add_argument("--only", default="", metavar="TEXT", help="only operators whose name contains this")
    parser.add_argument("--peers", nargs="+", default=list(bench.peers.STANDARD), choices=bench.peers.names())
    command.add_timing(parser, 0.05, "engine")
    return parser


if __name__ == "__main__":
    command.run(main)
