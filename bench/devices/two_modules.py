"""What the programs have in common that compare a model on several devices with one that is whole."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fusion.options import EFFORTS


def same_results(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> bool:
    """Return whether both are the same outputs, up to the order of sums."""
    return all(np.allclose(value, theirs[name], rtol=1e-3, atol=1e-4) for name, value in ours.items())


def add_options(parser: argparse.ArgumentParser, models: Sequence[str], rounds: int, measurements: str) -> None:
    """Add the options of what to compile, how long to measure it, and where the report goes."""
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"default: {' '.join(models)}")
    parser.add_argument("--effort", default="balanced", choices=EFFORTS)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument(
        "--seconds", type=float, default=2.0, help=f"of each measurement in a round; there are {measurements}"
    )
    parser.add_argument("--out", type=Path, default=Path("build") / "bench", help="folder of the report")
