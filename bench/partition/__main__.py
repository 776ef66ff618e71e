"""`python -m bench.partition`: how long the partition takes as graphs of several shapes grow."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench import command
from bench.partition import report
from bench.partition.growth import measure
from bench.partition.shapes import SHAPES

_SIZES = (100, 1000, 5000, 10_000, 20_000)


def main() -> int:
    """Return 0."""
    options = _parser().parse_args()
    points = []
    for point in measure(options.shapes, options.sizes):
        points.append(point)
        print(f"{point.shape}, {point.operators} operators: {point.seconds:.3f} s", file=sys.stderr, flush=True)
    text = report.text(points)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "partition.md").write_text(text)
    (options.out / "partition.json").write_text(report.as_json(points))
    report.plot(points, options.out / "partition.svg")
    print(text)
    print(f"written to {options.out}: partition.md, partition.json, partition.svg")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.partition", description=__doc__)
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES), choices=list(SHAPES), metavar="SHAPE")
    parser.add_argument("--sizes", nargs="+", type=int, default=list(_SIZES), metavar="N", help="operators")
    parser.add_argument("--out", type=Path, default=Path("build") / "bench", help="folder of the report")
    return parser


if __name__ == "__main__":
    command.run(main)
