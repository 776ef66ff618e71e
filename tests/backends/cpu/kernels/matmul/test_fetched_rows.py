"""Which matmuls fetch the rows of the next tile while one is computed."""

from __future__ import annotations

import pytest
from tvm import relax, tirx
from tvm.ir import TensorLoad, Var
from tvm.relax import op

from fusion.structural import find
from tests.backends.cpu.kernels.anchored import always, normal, run

ROWS, DEPTH = 64, 48
FEW, MANY = 64, 1024


def fetches_from(func: tirx.PrimFunc, source: Var) -> bool:
    """Return whether the code of `func` fetches lines of `source`."""
    calls = (found.value for found in find(func.body, tirx.Evaluate) if "llvm.prefetch" in str(found.value))
    return any(load.source.same_as(source) for call in calls for load in find(call, TensorLoad))


@pytest.mark.parametrize(("rows", "channels", "fetched"), [(ROWS, FEW, True), (ROWS, MANY, False), (4, FEW, False)])
def test_rows_of_few_channels_are_fetched(rows: int, channels: int, fetched: bool) -> None:
    """Of many channels the products of a row take so long that waiting for it is nothing, and one tile has no next."""
    weight = normal((DEPTH, channels), 1)
    ran = run(lambda b, x: op.matmul(x, relax.const(weight)), [normal((rows, DEPTH), 0)], "llvm", 1)
    (kernel,) = ran.kernels.values()
    assert fetches_from(kernel.made.func, kernel.made.func.params[0]) == fetched


@pytest.mark.parametrize(("channels", "fetched"), [(FEW, True), (MANY, False)])
def test_rows_of_each_product_of_a_batch_are_fetched(channels: int, fetched: bool) -> None:
    operands = [normal((3, ROWS, DEPTH), 0), normal((3, DEPTH, channels), 1)]
    ran = run(lambda b, x, y: op.matmul(x, y), operands, "llvm", 1)
    (kernel,) = ran.kernels.values()
    assert fetches_from(kernel.made.func, kernel.made.func.params[0]) == fetched


def test_rows_that_the_kernel_makes_are_not_fetched() -> None:
    """They lie in scratch, which L2 holds."""
    weight, scale = normal((DEPTH, FEW), 1), normal((DEPTH,), 2)

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        normed = b.emit(op.nn.layer_norm(x, relax.const(scale), relax.const(scale), [-1]))
        return op.matmul(normed, relax.const(weight))

    ran = run(build, [normal((ROWS, DEPTH), 0)], "llvm", 1, always)
    (kernel,) = ran.kernels.values()
    assert kernel.made.template == "matmul"
    assert not fetches_from(kernel.made.func, kernel.made.func.params[0])
