"""What `FormGroups` makes of a graph for a judge that one family of kernels is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import tvm_ffi
from tvm import relax, tirx

from fusion.bindings import Bindings
from fusion.declined import Declined
from partition.form_groups import FormGroups
from tests.partition.test_form_groups import legal
from tests.passes.modules import Build, evaluate

Parts = TypeVar("Parts")


def grouped(
    build: Build, arrays: Sequence[np.ndarray], read: Callable[[tirx.PrimFunc], Parts], reason: str = ""
) -> tuple[int, list[str], list[Parts]]:
    """Return how many kernels are left, why edges stayed, and what `read` made of the kernels that were asked for.

    Args:
        read: Raises `Declined` of kernels that are not the family's.
        reason: Why those that are stay apart; "" joins them.
    """
    asked: list[Parts] = []

    def judge(kernel: tirx.PrimFunc) -> str:
        try:
            asked.append(read(kernel))
        except Declined as error:
            return str(error)
        return reason

    mod, same = (legal(build, list(arrays)) for _ in range(2))
    groups = FormGroups(judge).run(mod)
    after = relax.transform.FuseTIR()(groups.mod)
    assert tvm_ffi.structural_equal(mod, same), "the pass changed its input"
    relax.analysis.well_formed(after)
    for got, want in zip(evaluate(after, arrays), evaluate(mod, arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    kernels = [value for _, value in Bindings.of(after["main"]).values.items() if isinstance(value, relax.Call)]
    return len(kernels), [kept.reason for kept in groups.fact.kept], asked
