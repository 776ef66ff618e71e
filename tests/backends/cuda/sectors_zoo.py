"""`python -m tests.backends.cuda.sectors_zoo [MODEL ...]`: how many of the bytes of sectors memory-bound kernels use.

Each memory-bound kernel of the models is run alone on the emulator, on drawn numbers: of a large grid some blocks,
drawn too, whose requests are like those of all. Ends with 1 where a kernel uses less than 95%.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tvm import tirx

from backends.cuda.codegen.device_code import DeviceKernels, generate_kernels
from backends.cuda.kernels.runs import GOOD_SHARE, SECTOR_BYTES
from backends.tensorir.stages import dtype_of, shape_of
from bench import zoo
from fusion.tensors import numpy_dtype
from tests.backends.cuda.emulate_zoo import MEMORY_BOUND
from tests.backends.cuda.emulator.emulate import emulate
from tests.backends.cuda.resources import PRECISIONS, functions_of

_BLOCKS = 24
"""That are run of a launch."""
_ORDER = 3
"""Of blocks and threads, drawn."""
_SEED = 22
_NUMBERS = 100
"""Below which integers are drawn, which may be indices."""


@dataclass(frozen=True)
class Asked:
    """What a kernel asks for.

    Attributes:
        used: Bytes of its accesses, as far as they were run.
        moved: Those of the sectors in which these lie.
    """

    name: str
    family: str
    used: int
    moved: int

    @property
    def share(self) -> float:
        return self.used / self.moved


def main() -> int:
    """Return 0 if all kernels use enough."""
    parser = argparse.ArgumentParser(prog="python -m tests.backends.cuda.sectors_zoo", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="of any set of the zoo (default: the first)")
    parser.add_argument("--precision", action="append", choices=PRECISIONS, help="several times (default: fp32)")
    options = parser.parse_args()
    missed = 0
    for precision in options.precision or PRECISIONS[:1]:
        for name in options.models or zoo.names(zoo.ZOO):
            with tempfile.TemporaryDirectory() as folder:
                found = list(asked_by(zoo.make(name), precision, Path(folder)))
            low = sorted((each for each in found if each.share < GOOD_SHARE), key=lambda each: each.used - each.moved)
            missed += len(low)
            told = f"{len(found)} memory-bound kernels, {len(low)} below {GOOD_SHARE:.0%}"
            print(f"{name} {precision}: {told}", flush=True)
            for each in low:
                print(f"  {each.share:.1%} of {each.moved:,} bytes: {each.name} ({each.family})", flush=True)
    return 1 if missed else 0


def asked_by(model: zoo.ZooModel, precision: str, folder: Path) -> Iterator[Asked]:
    """Yield what the memory-bound kernels of a model for sm_80 ask for."""
    for info, func in functions_of(model, "sm_80", precision, folder):
        if info.template in MEMORY_BOUND:
            used, moved = _run(func, generate_kernels(info.name, func, "sm_80"))
            yield Asked(info.name, info.template, used, moved)


def _run(func: tirx.PrimFunc, kernels: DeviceKernels) -> tuple[int, int]:
    """Return the bytes that the launches of a kernel use and ask for."""
    values = [_drawn(shape_of(param), dtype_of(param)) for param in func.params]
    values += [np.zeros(size, np.uint8) for size in kernels.workspaces]
    used = moved = 0
    for launch in kernels.launches:
        held = dict(zip(launch.kernel.parameters, (values[position] for position in launch.arguments), strict=True))
        counts = emulate(launch.kernel, held, (_ORDER,), most_blocks=_BLOCKS).counts
        used += counts.load_bytes + counts.store_bytes
        moved += SECTOR_BYTES * (counts.load_sectors + counts.store_sectors)
    return used, moved


def _drawn(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    made = np.random.default_rng(_SEED).integers(0, _NUMBERS, shape)
    return (made % 2 if dtype == "bool" else made).astype(numpy_dtype(dtype))


if __name__ == "__main__":
    sys.exit(main())
