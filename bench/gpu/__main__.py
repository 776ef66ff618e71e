"""`python -m bench.gpu`: CUDA modules on the device that is here, against torch and cuBLASLt: kernels, then the zoo."""

from __future__ import annotations

import argparse
import itertools
import sys
from pathlib import Path

from bench import command
from bench.gpu import report
from bench.gpu.device import require_device
from bench.gpu.engines import ENGINES, OURS
from bench.gpu.measure import DeviceComparisonPlan, compare, copy_gbs
from bench.gpu.result import DeviceReport, SubjectResult
from bench.gpu.subjects import FLOATS, KERNELS, Subject, models
from fusion.errors import FusionError


def main() -> int:
    """Return 0 if all is right and reaches what it has to, 1 if not, 2 where there is no device."""
    options = _parser().parse_args()
    try:
        device = require_device()
        plan = DeviceComparisonPlan(tuple(options.engines), options.rounds, options.seconds)
        copied, results = copy_gbs(plan), list[SubjectResult]()
        for subject in subjects(options):
            results.append(compare(subject, plan))
            print(f"{subject}: {results[-1].least_ratio()}", file=sys.stderr, flush=True)
    except FusionError as error:
        print(error, file=sys.stderr)
        return 2
    found = DeviceReport(device, copied, results)
    command.write(options.out, "gpu", report.text(found), report.as_json(found))
    return 0 if found.passed else 1


def subjects(options: argparse.Namespace) -> list[Subject]:
    """Return what is to be run: each name with each batch and each precision."""
    names = options.names or [*KERNELS, *models()]
    each = itertools.product(names, options.batches, options.precisions)
    return [Subject(name, batch, precision) for name, batch, precision in each]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description=__doc__)
    known = " ".join(KERNELS)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of: {known}, or a model of the zoo (default: all)")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 32], metavar="N")
    parser.add_argument("--precisions", nargs="+", choices=list(FLOATS), default=list(FLOATS))
    others = [name for name in ENGINES if name != OURS]
    parser.add_argument("--engines", nargs="+", choices=others, default=others, help="to compare with (default: all)")
    parser.add_argument("--rounds", type=int, default=DeviceComparisonPlan.rounds)
    parser.add_argument("--seconds", type=float, default=DeviceComparisonPlan.round_s, help="per round and engine")
    parser.add_argument("--out", type=Path, default=Path("build") / "bench", help="folder of the report")
    return parser


if __name__ == "__main__":
    command.run(main)
