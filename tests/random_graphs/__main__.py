"""`python -m tests.random_graphs FIRST COUNT`: check many graphs; the test suite checks the first few."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.random_graphs.check import differences


def main() -> int:
    """Return 0 if every graph is right, else 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first", type=int, nargs="?", default=0)
    parser.add_argument("count", type=int, nargs="?", default=2000)
    options = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(options.first, options.first + options.count):
            try:
                found = differences(seed, Path(folder) / "model.onnx")
            except Exception as error:  # whatever it is, the other graphs are checked too
                found = [f"{type(error).__name__}: {error}"]
            for reason in found:
                wrong += 1
                print(f"{seed}: {reason}", flush=True)
    print(f"{options.count} graphs, {wrong} differences")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
