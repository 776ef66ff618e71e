"""Runs the kernels of a product on the emulator, at a point or at the one that is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import ml_dtypes  # noqa: F401, so that NumPy knows bfloat16
import numpy as np
from tvm import tirx

from backends.cuda.codegen.generate import CudaKernel, generate_kernel
from backends.cuda.devices import A100
from backends.cuda.kernels.matmul.choose import choose
from backends.cuda.kernels.matmul.kernels import PARTIAL, emit_matmul
from backends.cuda.kernels.matmul.plan import Plan, TileShape, cores_of
from backends.cuda.kernels.matmul.read import read_product
from tests.backends.cpu.kernels.memory_bound import Build, prim_func
from tests.backends.cuda.emulator.emulate import ORDERS, Counts, emulate

SMALL = TileShape(rows=32, columns=32, depth=16, warp_rows=16, warp_columns=32, stages=3)
"""A point that all types of numbers have."""


@dataclass(frozen=True)
class Multiplied:
    """What the kernels made.

    Attributes:
        counts: Of each kernel.
    """

    result: np.ndarray
    counts: Sequence[Counts]


def plan_of(func: tirx.PrimFunc, point: TileShape | None = None, *, tfloat32: bool = False) -> Plan:
    """Return the plan at a point, or the one that is chosen for an A100."""
    product = read_product(func)
    cores = cores_of(product, tfloat32=tfloat32)
    return choose(product, cores, A100) if point is None else Plan(product, cores, point)


def kernels_of(build: Build, arrays: Sequence[np.ndarray], point: TileShape | None = None) -> list[CudaKernel]:
    """Return the CUDA C of a product's kernels."""
    func = prim_func(build, arrays)
    return [generate_kernel(kernel, "product", "sm_80") for kernel in emit_matmul(func, plan_of(func, point))]


def multiply(
    build: Build,
    *arrays: np.ndarray,
    point: TileShape | None = SMALL,
    tfloat32: bool = False,
    orders: tuple[int, ...] = ORDERS,
) -> Multiplied:
    """Return the one output, which begins as NaN, and check that no bank of shared memory is asked more than twice."""
    func = prim_func(build, arrays)
    plan = plan_of(func, point, tfloat32=tfloat32)
    *inputs, output = func.params
    shape = tuple(int(dim) for dim in output.ty.shape)
    kernels = emit_matmul(func, plan)
    partial = [int(param.ty.shape[0]) for param in kernels[0].params if param.name == PARTIAL]
    named = dict(zip((param.name for param in inputs), arrays, strict=True))
    named[output.name] = np.full(shape, np.nan, np.dtype(str(output.ty.dtype.dtype)))
    named[PARTIAL] = np.full(partial, np.nan, np.float32)
    counts = []
    for kernel in kernels:
        generated = generate_kernel(kernel, "product", "sm_80")
        done = emulate(generated, {name: named[name] for name in generated.parameters}, orders)
        named |= done.arrays
        counts.append(done.counts)
    assert max(each.worst_conflict for each in counts) <= 2
    return Multiplied(named[output.name], counts)
