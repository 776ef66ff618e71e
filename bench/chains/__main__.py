"""`python -m bench.chains`: chains of matmuls and convolutions in one kernel and in several, against the peers and
against what the cost tables say."""

from __future__ import annotations

import argparse
import sys

import bench.peers
from bench import command, protocol
from bench.chains import report
from bench.chains.measure import time_chains
from bench.chains.workloads import chains
from bench.machine import measure_machine


def main() -> int:
    """Return 0 if every chain passed the gate, else 1."""
    options = _parser().parse_args()
    machine = measure_machine(options.threads)
    plan = protocol.ComparisonPlan(options.threads, options.rounds, options.seconds, tuple(options.peers), checks=1)
    chosen = [chain for chain in chains() if _matches(f"{chain.case.family} {chain.case.name}", options.only)]
    timed = []
    for number, found in enumerate(time_chains(chosen, plan), 1):
        timed.append(found)
        print(f"{number}/{len(chosen)} {found.chain.case.name}: {found.over_peer}", file=sys.stderr, flush=True)
    order = {chain.case.name: place for place, chain in enumerate(chosen)}
    timed.sort(key=lambda found: order[found.chain.case.name])
    command.write(options.out, "chains", report.text(timed, machine), report.as_json(timed, machine))
    return 0 if all(found.measured.result.passed for found in timed) else 1


def _matches(name: str, texts: list[str]) -> bool:
    return any(text in name for text in texts)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.chains", description=__doc__)
    parser.add_argument("--only", nargs="+", default=[""], metavar="TEXT", help="of the family or the name")
    parser.add_argument("--peers", nargs="+", default=list(bench.peers.STANDARD), choices=bench.peers.STANDARD)
    command.add_timing(parser, 0.05, "engine")
    return parser


if __name__ == "__main__":
    command.run(main)
