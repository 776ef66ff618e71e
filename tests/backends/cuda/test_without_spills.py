"""Kernels that spill are compiled for fewer blocks on an SM, as the machine code says."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from backends.cuda.codegen.device_code import generate_kernels
from backends.cuda.codegen.generate import CudaKernel, leave_registers_for
from backends.cuda.codegen.without_spills import Taken, without_spills
from backends.cuda.devices import DEVICES
from backends.cuda.lowerings import LOWERINGS
from backends.cuda.runtime.cubin import read_resources
from backends.cuda.schedule import schedule
from tests.backends.cpu.kernels.memory_bound import prim_func
from tests.backends.cuda.toolkit import WHY_NO_CUBIN, cubin_of

_REGISTERS, _TOO_FEW = 65536, 64
"""Of an SM, and those of a thread in which no tile of a convolution's sums lies."""
_BOUNDS = "__launch_bounds__(128)"
_KERNEL = CudaKernel(f"void {_BOUNDS} f();\nvoid {_BOUNDS} f() {{}}", "f", (), blocks=9, threads=128)


def told(blocks: int) -> str:
    return _KERNEL.source.replace(_BOUNDS, f"__launch_bounds__(128, {blocks})")


def test_blocks_are_said_in_place_of_those_said_before() -> None:
    assert leave_registers_for(3, _KERNEL.source) == told(3)
    assert leave_registers_for(5, told(3)) == told(5)


def test_there_are_as_many_blocks_as_spill_nothing_on_any_architecture() -> None:
    spilled = {_KERNEL.source: {"sm_80": 0, "sm_90": 32}, told(6): {"sm_80": 0, "sm_90": 8}, told(5): {}}
    asked = []

    def taken(kernel: CudaKernel, arch: str) -> Taken:
        asked.append((kernel.source, arch))
        return 72, spilled[kernel.source].get(arch, 0)

    assert without_spills(_KERNEL, ("sm_80", "sm_90"), taken).source == told(5)
    assert len(asked) == 6


def test_a_kernel_that_spills_nothing_or_whatever_it_is_told_stays_as_it_is() -> None:
    for found in ((72, 0), (255, 16), (32, 400), (0, 0)):
        assert without_spills(_KERNEL, ("sm_80",), _always(found)) is _KERNEL


def _always(found: Taken) -> Callable[[CudaKernel, str], Taken]:
    return lambda kernel, arch: found


@pytest.mark.skipif(bool(WHY_NO_CUBIN), reason=WHY_NO_CUBIN)
@pytest.mark.parametrize("arch", DEVICES)
def test_a_convolution_whose_windows_take_many_registers_does_not_spill(arch: str, tmp_path: Path) -> None:
    """ResNet's first in float16, whose elements are copied one by one: as it is, and told to leave registers for
    more blocks than there are any for."""
    (lower,) = LOWERINGS["relax.nn.conv2d"]

    def convolution(b: relax.BlockBuilder, x: relax.Expr, w: relax.Expr) -> relax.Expr:
        call = op.nn.conv2d(x, w, (2, 2), (3, 3, 3, 3), data_layout="NHWC", kernel_layout="OIHW")
        return lower.apply(b, b.normalize(call))

    arrays = [np.zeros(shape, np.float16) for shape in ((1, 224, 224, 3), (64, 3, 7, 7))]
    made = schedule(prim_func(convolution, arrays), DEVICES[arch])
    (launch,) = generate_kernels("kernel", made.func, arch).launches

    @functools.cache
    def taken(kernel: CudaKernel, arch: str) -> Taken:
        found = read_resources(cubin_of(kernel, arch, tmp_path), kernel.symbol)
        assert found is not None
        return found.registers, found.local_bytes

    assert taken(launch.kernel, arch)[1] == 0
    blocks = _REGISTERS // (_TOO_FEW * launch.kernel.threads)
    eager = replace(launch.kernel, source=leave_registers_for(blocks, launch.kernel.source))
    assert taken(eager, arch)[1] > 0
    kept = without_spills(eager, (arch,), taken)
    assert taken(kept, arch)[1] == 0
