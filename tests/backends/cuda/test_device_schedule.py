"""Which template takes a kernel, and what none takes."""

from __future__ import annotations

import numpy as np
import pytest
from tvm.relax import op

from backends.cuda.devices import A100
from backends.cuda.schedule import schedule
from backends.kernel import UNSCHEDULED
from tests.backends.cpu.kernels.memory_bound import Build, prim_func


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
