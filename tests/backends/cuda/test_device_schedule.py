"""Which template takes a kernel, and what none takes."""

from __future__ import annotations

import numpy as np
import pytest
from tvm.relax import op

from backends.cuda.codegen.device_code import generate_kernels
from backends.cuda.devices import A100, H100
from backends.cuda.schedule import schedule
from backends.kernel import UNSCHEDULED
from tests.backends.cpu.kernels.memory_bound import Build, prim_func


def test_a_product_whose_blocks_share_all_steps_is_two_launches_with_registers_enough() -> None:
    x, y = np.zeros((1536, 4096), np.float16), np.zeros((4096, 1536), np.float16)
    made = schedule(prim_func(lambda b, x, y: op.matmul(x, y), [x, y]), H100)
    assert "132 blocks share all steps" in made.tile
    first, second = (launch.kernel for launch in generate_kernels("k", made.func, "sm_90").launches)
    assert (first.blocks, second.blocks) == (132, 131)
    assert "__launch_bounds__(128, 1)" in first.source


@pytest.mark.parametrize(
    "build",
    [
        lambda b, x: op.strided_slice(x, [1], [0], [8]), lambda b, x: op.sum(x, -1), lambda b, x: op.sum(x, 0),
        lambda b, x: op.matmul(op.permute_dims(x), x),
    ],
    ids=["a slice", "rows", "columns", "a product"],
)  # fmt: skip
def test_a_tensor_of_more_elements_than_an_int32_counts_is_declined(build: Build) -> None:
    x = np.broadcast_to(np.float16(0), (2**26, 32))
    made = schedule(prim_func(build, [x]), A100)
    assert made.template == UNSCHEDULED
    assert made.note == "x0 has 2,147,483,648 elements, more than an int32 counts"
    taken = schedule(prim_func(build, [x[:-1]]), A100)
    assert taken.template != UNSCHEDULED
