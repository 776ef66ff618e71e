"""`python -m tests.backends.cuda.sectors_zoo [MODEL ...]`: how many of the bytes of sectors memory-bound kernels use.

Each memory-bound kernel of the models is run alone on the emulator, on its weights and otherwise drawn numbers: of a
large grid some blocks, drawn too, whose requests are like those of all. What is compared with is what its tensors have
of the sectors that they lie in: a tensor of 8 bytes has a quarter of one. Ends with 1 where a kernel uses less than 95%
of that.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np

import fusion
from backends.cuda.codegen import device_code
from backends.cuda.codegen.device_code import DeviceKernels
from backends.cuda.codegen.nvrtc import Assembled
from backends.cuda.kernels.runs import GOOD_SHARE, SECTOR_BYTES
from bench import zoo
from fusion.module.plan import Argument, KernelCall
from fusion.tensors import as_numpy, numpy_dtype
from tests.backends.cuda.emulate_zoo import MEMORY_BOUND, branching, with_constants
from tests.backends.cuda.emulator.emulate import emulate
from tests.backends.cuda.narrow_model import in_float16
from tests.backends.cuda.resources import PRECISIONS
from tests.backends.cuda.written_code import read_code

_BLOCKS = 24
"""That are run of a launch."""
_ORDER = 3
"""Of blocks and threads, drawn."""
_SEED = 22
_NUMBERS = 100
"""Below which integers are drawn, which may be indices."""
_FLOAT16 = "fp16"


@dataclass(frozen=True)
class Asked:
    """What a kernel asks for.

    Attributes:
        used: Bytes of its accesses, as far as they were run.
        moved: Those of the sectors in which these lie.
        bound: The share of these that its tensors fill.
    """

    name: str
    family: str
    used: int
    moved: int
    bound: float

    @property
    def share(self) -> float:
        """Of the bytes of sectors, those that are used."""
        return self.used / self.moved

    @property
    def is_low(self) -> bool:
        """Whether it uses too little."""
        return self.share < GOOD_SHARE * self.bound


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
            low = sorted((each for each in found if each.is_low), key=lambda each: each.used - each.moved)
            missed += len(low)
            small = sum(each.share < GOOD_SHARE for each in found) - len(low)
            told = f"{len(found)} memory-bound kernels, {len(low)} below {GOOD_SHARE:.0%} of what their tensors fill"
            print(f"{name} {precision}: {told}, {small} more whose tensors fill less", flush=True)
            for each in low:
                told = f"{each.share:.1%} of {each.moved:,} bytes, bound {each.bound:.1%}"
                print(f"  {told}: {each.name} ({each.family})", flush=True)
    return 1 if missed else 0


def asked_by(model: zoo.ZooModel, precision: str, folder: Path) -> Iterator[Asked]:
    """Yield what the memory-bound kernels of a model for sm_80 ask for."""
    constants = branching(model)
    shapes = {name: shape for name, shape in model.shapes.items() if name not in constants}
    path, asked = (in_float16(model.path, folder), "fp32") if precision == _FLOAT16 else (model.path, precision)
    with mock.patch.object(device_code, "assemble", return_value=Assembled(b"", b"")):
        path = with_constants(path, constants, folder) if constants else path
        module = fusion.compile(path, "cuda -arch=sm_80", shapes=shapes, precision=asked)
    (form,) = module.specializations
    assert form.code is not None
    kernels, weights = read_code(form.code.library()), [as_numpy(weight) for weight in form.code.weights]
    for call in {call.kernel: call for call in form.code.plan.calls}.values():
        family = form.kernels[call.kernel].template
        if family in MEMORY_BOUND:
            yield _run(call, family, kernels[call.kernel], weights)


def _run(call: KernelCall, family: str, kernels: DeviceKernels, weights: list[np.ndarray]) -> Asked:
    """Return what the launches of a kernel ask for."""
    values = [weights[each.index] if each.kind == "weight" else _drawn(each) for each in call.arguments]
    sectors = sum(-(-each.nbytes // SECTOR_BYTES) for each in values)
    filled = sum(each.nbytes for each in values) / (SECTOR_BYTES * sectors)
    values += [np.zeros(size, np.uint8) for size in kernels.workspaces]
    used = moved = 0
    for launch in kernels.launches:
        held = dict(zip(launch.kernel.parameters, (values[position] for position in launch.arguments), strict=True))
        counts = emulate(launch.kernel, held, (_ORDER,), most_blocks=_BLOCKS).counts
        used += counts.load_bytes + counts.store_bytes
        moved += SECTOR_BYTES * (counts.load_sectors + counts.store_sectors)
    return Asked(call.kernel, family, used, moved, filled)


def _drawn(argument: Argument) -> np.ndarray:
    dtype = numpy_dtype(argument.dtype)
    made = np.random.default_rng(_SEED).integers(0, _NUMBERS, argument.shape)
    return (made % 2 if argument.dtype == "bool" else made).astype(dtype)


if __name__ == "__main__":
    sys.exit(main())
