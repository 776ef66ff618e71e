"""Runs a kernel that is made of a PrimFunc on the emulator."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes  # noqa: F401, so that NumPy knows bfloat16
import numpy as np
from tvm import tirx

from backends.cuda.codegen.generate import generate_kernel
from tests.backends.cpu.kernels.memory_bound import Build, prim_func
from tests.backends.cuda.emulator.emulate import Counts, emulate


def numbers(*shape: int) -> np.ndarray:
    """Return float32 numbers of this shape, the same for each call."""
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def run(
    emit: Callable[[tirx.PrimFunc], tirx.PrimFunc], build: Build, *arrays: np.ndarray
) -> tuple[np.ndarray, Counts]:
    """Return the one output of what `emit` makes, which begins as NaN, and what the accesses add up to."""
    func = prim_func(build, arrays)
    kernel = generate_kernel(emit(func), "kernel", "sm_80")
    *inputs, output = (param.name for param in func.params)
    made = func.params[-1].ty
    result = np.zeros([int(dim) for dim in made.shape], np.dtype(str(made.dtype.dtype)))
    result.view(np.uint8)[...] = 0xFF
    named = dict(zip(inputs, arrays, strict=True)) | {output: result}
    done = emulate(kernel, {name: named[name] for name in kernel.parameters})
    return done.arrays[output], done.counts
