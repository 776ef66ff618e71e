"""Runs saved modules on an emulated Cortex-A72, through `fusion.load` in a Python for aarch64 (`make aarch64`)."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
MACHINE = ROOT / ".venv-aarch64"
"""Where `make aarch64` unpacks a Python and its packages; looked for nowhere else."""
TARGET = "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72"

_RUN = """
import sys, numpy as np, fusion
module, feeds = fusion.load(sys.argv[1]), dict(np.load(sys.argv[2]))
np.savez(sys.argv[3], **module.run(feeds))
assert "tvm" not in sys.modules
"""


def missing() -> str:
    """Return what is missing here to run code of aarch64, "" if nothing is."""
    if shutil.which("qemu-aarch64") is None:
        return "there is no qemu-aarch64 (Debian: apt install qemu-user)"
    if not (MACHINE / "usr/bin/python3").exists():
        return "there is no Python for aarch64 (make aarch64)"
    return ""


def run(saved: Path, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the outputs by name of the module in the file `saved`, whose folder gets other files too."""
    given, made = saved.with_suffix(".in.npz"), saved.with_suffix(".out.npz")
    np.savez(given, **feeds)
    done = call("-c", _RUN, str(saved), str(given), str(made))
    assert done.returncode == 0, done.stderr
    with np.load(made) as outputs:
        return dict(outputs)


def call(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Call the emulated Python and return how it ended."""
    # The CPU's own features and no others: an instruction that a Cortex-A72 lacks ends the process.
    environment = {
        "PATH": os.environ["PATH"], "QEMU_CPU": "cortex-a72", "PYTHONPATH": f"{MACHINE / 'site'}:{ROOT}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    command = ["qemu-aarch64", "-L", str(MACHINE), str(MACHINE / "usr/bin/python3"), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
