"""Libraries that tests have in the place of NVIDIA's, on the memory and the streams of the fake driver."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

from tests.backends.cuda.emulator.emulate import COMPILER
from tests.backends.cuda.fake.fake_cuda import fake_library


@functools.cache
def compiled(source: Path, name: str) -> Path:
    """Return what a source is compiled to, a library of this name beside the fake driver."""
    assert COMPILER is not None
    driver = fake_library()
    made = driver.with_name(name)
    command = [
        COMPILER, "-std=c++20", "-O0", "-shared", "-fPIC", str(source), str(driver), f"-Wl,-rpath,{driver.parent}",
        "-o", str(made),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return made
