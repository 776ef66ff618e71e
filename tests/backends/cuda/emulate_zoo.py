"""`python -m tests.backends.cuda.emulate_zoo [MODEL ...]`: run models of the zoo on the emulator, against float64.

Compiles each for sm_80, runs the kernels of its plan one after another, and compares with the evaluation of the model
in float64, as the gate of the benchmarks does. Says how many of the bytes of sectors its memory-bound kernels use.
Inputs of one integer, by which models branch, are constants: a run on a device has no branches. NVRTC is not needed.
Ends with 1 where a kernel is wrong.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import numpy as np
import onnx

import fusion
from backends.cuda.codegen import device_code
from backends.cuda.codegen.nvrtc import Assembled
from backends.cuda.kernels.runs import SECTOR_BYTES
from backends.kernel import KernelInfo
from bench import zoo
from bench.gate import error_of
from bench.reference.evaluate import evaluate
from tests.backends.cuda.emulator.emulate import Counts
from tests.backends.cuda.planned import run_planned

SMALLEST = ("bert_tiny", "silero_vad", "ppocr_cls")
_SEED = 2250
MEMORY_BOUND = ("rows", "transposes", "pointwise", "reductions")
_LIMITS = {"fp32": 1e-3, "tf32": 2e-2, "bf16": 1e-1}
"""By how much results may differ, of what the gate compares with 1e-3 in float32."""


def main() -> int:
    """Return 0 if all models are right."""
    parser = argparse.ArgumentParser(prog="python -m tests.backends.cuda.emulate_zoo", description=__doc__)
    default = f"default: {', '.join(SMALLEST)}"
    parser.add_argument("models", nargs="*", metavar="MODEL", default=SMALLEST, help=default)
    parser.add_argument("--precision", choices=list(_LIMITS), default="fp32", help="as of fusion.compile")
    options = parser.parse_args()
    return 0 if all([_run(name, options.precision) for name in options.models]) else 1


def _run(name: str, precision: str) -> bool:
    model, started = zoo.make(name), time.monotonic()
    inputs, constants = model.inputs(_SEED), branching(model)
    shapes = {name: shape for name, shape in model.shapes.items() if name not in constants}
    assembled = mock.patch.object(device_code, "assemble", return_value=Assembled(b"", b""))
    with tempfile.TemporaryDirectory() as folder, assembled:
        path = with_constants(model.path, constants, Path(folder)) if constants else model.path
        module = fusion.compile(path, "cuda -arch=sm_80", shapes=shapes, precision=precision)
    (form,) = module.specializations
    sectors = Sectors(form.kernels)
    arrays = [np.ascontiguousarray(inputs[spec.name]) for spec in module.inputs]
    made = run_planned(module, *arrays, seen=sectors.add)
    wanted = evaluate(model.path, inputs)
    error = max(error_of(found, wanted[spec.name]) for found, spec in zip(made, module.outputs, strict=True))
    print(f"{name} {precision}: error {error:.2e}, {sectors.said()}, {time.monotonic() - started:.0f} s", flush=True)
    return error <= _LIMITS[precision]


@dataclass
class Sectors:
    """The sectors that memory-bound kernels of a model ask for.

    Attributes:
        kernels: What is known of them, by name.
        used, asked: Bytes of each kernel's accesses, and of the sectors in which these lie.
    """

    kernels: Mapping[str, KernelInfo]
    used: Counter[str] = field(default_factory=Counter)
    asked: Counter[str] = field(default_factory=Counter)

    def add(self, kernel: str, counts: list[Counts]) -> None:
        """Count a call."""
        if self.kernels[kernel].template in MEMORY_BOUND:
            self.used[kernel] += sum(each.load_bytes + each.store_bytes for each in counts)
            self.asked[kernel] += SECTOR_BYTES * sum(each.load_sectors + each.store_sectors for each in counts)

    def said(self) -> str:
        """Return the share of all, and that of the kernel that leaves the most bytes unused."""
        worst = max(self.asked, key=lambda kernel: self.asked[kernel] - self.used[kernel])
        alone = f"{worst} {self.used[worst] / self.asked[worst]:.1%} of {self.asked[worst]:,}"
        share = self.used.total() / self.asked.total()
        return f"{share:.1%} of {self.asked.total():,} bytes of sectors ({alone})"


def branching(model: zoo.ZooModel) -> dict[str, np.ndarray]:
    """Return the inputs of one integer, by which models branch."""
    inputs = model.inputs(_SEED)
    return {name: array for name, array in inputs.items() if array.shape == () and array.dtype.kind == "i"}


def with_constants(path: Path, values: Mapping[str, np.ndarray], folder: Path) -> Path:
    """Return a copy of a model of which these inputs are constants."""
    model = onnx.load(path)
    kept = [each for each in model.graph.input if each.name not in values]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in values.items())
    onnx.save(model, folder / path.name)
    return folder / path.name


if __name__ == "__main__":
    sys.exit(main())
