"""`python -m bench.devices`: plans for a simulated server, each method against the optimum and the bound."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench import command
from bench.devices import report
from bench.devices.instances import first_difference
from bench.devices.measure import PlanResult, measure
from bench.devices.networks import NETWORKS
from fusion.errors import FusionError
from placement.devices_file import read_devices
from placement.problem import OBJECTIVES

SERVER = Path(__file__).with_name("server.toml")


def main() -> int:
    """Return 1 if an exact plan is not the best of all, 2 for wrong options or without HiGHS, otherwise 0."""
    options = _parser().parse_args()
    try:
        if options.instances:
            difference = first_difference(options.instances)
            print(difference or f"{options.instances} instances: every exact plan is the best there is")
            return int(bool(difference))
        results = _results(options)
    except FusionError as error:
        print(error, file=sys.stderr)
        return 2
    command.write(options.out, "devices", report.text(results), report.as_json(results))
    return 0


def _results(options: argparse.Namespace) -> list[PlanResult]:
    """Return the plans of all networks, each told as soon as it is made."""
    topology, results = read_devices(options.devices), list[PlanResult]()
    for batch in options.batches:
        for name in options.networks:
            for result in measure(name, batch, topology, options.exact, options.objectives):
                results.append(result)
                print(report.line(result), file=sys.stderr, flush=True)
    return results


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.devices", description=__doc__)
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=list(NETWORKS), metavar="NETWORK")
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 32], metavar="N")
    parser.add_argument("--objectives", nargs="+", default=list(OBJECTIVES), choices=OBJECTIVES)
    parser.add_argument("--devices", type=Path, default=SERVER, metavar="FILE.toml")
    parser.add_argument("--exact", type=float, default=0.0, metavar="S", help="CPU seconds for HiGHS, a plan")
    parser.add_argument("--instances", type=int, default=0, metavar="N", help="compare so many with trying all plans")
    parser.add_argument("--out", type=Path, default=Path("build") / "bench", help="folder of the report")
    return parser


if __name__ == "__main__":
    command.run(main)
