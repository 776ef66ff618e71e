"""One kernel of each family, before it has loops."""

from __future__ import annotations

from tvm import relax, tirx

from backends.cpu.kernels.priority import recognise
from fusion.declined import Declined
from fusion.frontends.recurrence import Sizes, recurrence_func
from partition.recurrence import Recurrence
from tests.backends.cpu.kernels.anchored import groups, normal
from tests.backends.cpu.kernels.attention.test_attention import always
from tests.backends.cpu.kernels.test_spaces import CASES, STITCHED
from tests.passes.modules import module
from tests.tables.expressions import expression, shapes


def kernel_of(family: str) -> tuple[tirx.PrimFunc, str]:
    """Return a kernel that is of `family`, and what it computes."""
    if family == "recurrent":
        recurrence = Recurrence("LSTM", (False, True), (("Sigmoid", "Tanh", "Tanh"),) * 2)
        func = recurrence_func(recurrence, Sizes(steps=16, batch=4, hidden=128), "float32")
        return func, "an LSTM in both directions, 16 steps, 4 sequences, 128 hidden units"
    build, shape = {**CASES, "stitch_stages": STITCHED["softmax"], "fallback_loops": (_sorted, (3, 40))}[family]
    mod = module(build, [normal(shape, 0)])
    found = [func for func in groups(build, [normal(shape, 0)], always) if _family(func) == family]
    assert len(found) == 1, f"{len(found)} kernels of {family}"
    return found[0], f"`{expression(mod)}`, {shapes(mod)}"


def _family(func: tirx.PrimFunc) -> str:
    try:
        return recognise(func)[0].name
    except Declined:
        return "fallback_loops"


def _sorted(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return relax.op.cumsum(x, 1)
