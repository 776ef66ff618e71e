"""A running sum, of which no stages are read."""

from __future__ import annotations

from tvm import relax

from tests.backends.cpu.kernels.examples import Example


def running_sum(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return relax.op.cumsum(x, 1)


EXAMPLES = (Example(running_sum, (3, 40), has_estimates=False),)
