"""torch's attention is one attention kernel, which computes what torch does in float64, also of rows without keys."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import fusion
from tests.backends.cuda.emulator.emulate import WHY_NOT
from tests.backends.cuda.planned import run_planned

pytestmark = [pytest.mark.usefixtures("assembler"), pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]
_RANDOM = torch.Generator().manual_seed(2271)


def _normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=_RANDOM)


QUERY, KEY, VALUE = _normal(1, 4, 19, 16), _normal(1, 4, 37, 16), _normal(1, 4, 37, 24)
KEPT = torch.rand(1, 1, 19, 37, generator=_RANDOM) > 0.4
KEPT[..., 3, :] = False
ADDED = torch.where(KEPT[:, 0], _normal(1, 19, 37), -torch.inf)

CASES: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...]]] = {
    "kept": (lambda *given: F.scaled_dot_product_attention(*given), (QUERY, KEY, VALUE, KEPT)),
    "added": (lambda *given: F.scaled_dot_product_attention(*given, scale=0.4), (QUERY, KEY, VALUE, ADDED)),
    "causal": (lambda *given: F.scaled_dot_product_attention(*given, is_causal=True), (QUERY, KEY, VALUE)),
    "shared keys, kept": (
        lambda *given: F.scaled_dot_product_attention(*given, enable_gqa=True),
        (QUERY, KEY[:, ::2], VALUE[:, ::2], KEPT.expand(1, 4, 19, 37)),
    ),
}  # fmt: skip


class Computed(torch.nn.Module):
    """A function of torch as a module."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *given: Tensor) -> Tensor:
        return self.function(*given)


@pytest.mark.parametrize("name", CASES)
def test_one_kernel(name: str) -> None:
    function, given = CASES[name]
    given = tuple(each.contiguous() for each in given)
    module = fusion.compile((Computed(function), given), target="cuda -arch=sm_80")
    told = module.explain()
    assert told.count(" attention ") == 1
    assert " product " not in told
    assert " rows " not in told
    wide = function(*(each.double() if each.is_floating_point() else each for each in given))
    (found,) = run_planned(module, *(each.numpy() for each in given))
    np.testing.assert_allclose(found, wide.numpy(), rtol=1e-5, atol=2e-6)
