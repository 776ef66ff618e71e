"""`python -m tests.nearest`: run the tests nearest to what a branch changes, for a minute; exit code as of pytest."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from tests.nearest.choose import changed_files, nearest_tests

ROOT = Path(__file__).parents[2]


def main() -> int:
    """Return pytest's exit code, or 2 if git cannot tell what has changed."""
    options = _options()
    try:
        changed = changed_files(ROOT, options.against)
    except subprocess.CalledProcessError:
        print(f"git cannot tell what differs from {options.against}: --against names another branch", file=sys.stderr)
        return 2
    tests = nearest_tests(ROOT, changed)
    print(f"{len(changed)} files differ from {options.against}; {len(tests)} files of tests are near them", flush=True)
    # Without the reordering, workers take the tests in the order that they are given in.
    order = ("--dist", "loadfile", "--no-loadscope-reorder")
    bound = ("-p", "tests.nearest.bounded", "--for-seconds", str(options.seconds))
    return pytest.main(["-q", "-n", "auto", *order, *bound, *(str(ROOT / test) for test in tests)])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.nearest", description=__doc__)
    parser.add_argument("--against", default="main", help="the branch that the change is for")
    parser.add_argument("--seconds", type=float, default=60.0, help="start no test that would end later")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
