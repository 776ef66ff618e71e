"""`python -m bench.gpu.sanitize`: all kernels of the bench once on the device, under each tool of compute-sanitizer.

Ends with 1 where a tool finds something. It needs a device, and NVIDIA's compute-sanitizer in the PATH.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence

from bench import command
from bench.gpu.device import require_device
from bench.gpu.engines import OURS
from bench.gpu.subjects import FLOATS, KERNELS, Subject
from fusion.errors import FusionError, NotInstalledError

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
_FOUND = 9
"""What compute-sanitizer ends with where it found something."""
_TOLD = {0: "nothing found", _FOUND: "found something"}


def main() -> int:
    """Return 0 where no tool finds anything, 1 where one does, 2 where there is nothing to run it on."""
    if sys.argv[1:] == ["--run"]:
        return run_kernels()
    try:
        require_device()
        program = shutil.which("compute-sanitizer")
        if program is None:
            raise NotInstalledError(
                "compute-sanitizer is not in the PATH", hint="install NVIDIA's CUDA toolkit, which brings it"
            )
    except FusionError as error:
        print(error, file=sys.stderr)
        return 2
    codes = {tool: subprocess.run(command_of(program, tool), check=False).returncode for tool in TOOLS}
    for tool, code in codes.items():
        print(f"{tool}: {_TOLD.get(code, f'ended with {code}')}")
    return int(any(codes.values()))


def command_of(program: str, tool: str) -> Sequence[str]:
    """Return the command that runs the kernels under a tool."""
    return [
        program, "--tool", tool, "--error-exitcode", str(_FOUND), sys.executable, "-m", "bench.gpu.sanitize", "--run",
    ]  # fmt: skip


def run_kernels() -> int:
    """Run each kernel at batch 1 twice, launched and as a graph; return 0."""
    import torch

    from bench.gpu.engines import ENGINES
    from bench.gpu.subjects import make

    for precision in FLOATS:
        for name in KERNELS:
            subject = Subject(name, 1, precision)
            made = make(subject)
            run = ENGINES[OURS](subject, made, [torch.from_numpy(each).cuda() for each in made.draw(0)])
            for _ in range(2):
                run()
            torch.cuda.synchronize()
    return 0


if __name__ == "__main__":
    command.run(main)
