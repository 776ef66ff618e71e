"""Runs the random damage of `test_saved_files` in a process of its own, which it may crash."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.bad_input.test_saved_files import damage

if __name__ == "__main__":
    damage(Path(sys.argv[1]), int(sys.argv[2]))
