"""Small torch programs in each dtype: kernels on the emulator compute what torch does in float64."""

from __future__ import annotations

import copy
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import fusion
from tests.backends.cuda.emulator.emulate import WHY_NOT
from tests.backends.cuda.planned import run_planned
from tests.backends.cuda.test_torch_attention import Computed

pytestmark = [pytest.mark.usefixtures("assembler"), pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]
_RANDOM = torch.Generator().manual_seed(2290)
_BOUND = {torch.float32: 2.0**-20, torch.float16: 2.0**-9, torch.bfloat16: 2.0**-6}
"""Of the largest result: four roundings of results and of what kernels hand each other; of float32, sixteen, for sums
are float32 too."""


def _normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=_RANDOM)


def _resized(**options: object) -> nn.Module:
    return Computed(lambda x: F.interpolate(x, **options))


IMAGE = _normal(2, 8, 6, 6)
CASES: dict[str, tuple[Callable[[], nn.Module], tuple[Tensor, ...]]] = {
    # An index is made of a float, and clamped: in an expression, and by tensors that a stage of its own computes.
    "resized by 2": (lambda: _resized(scale_factor=2), (IMAGE,)),
    "resized by 1/2": (lambda: _resized(scale_factor=0.5), (IMAGE,)),
    "resized to 7x9": (lambda: _resized(size=(7, 9)), (IMAGE,)),
    "resized between convolutions": (
        lambda: nn.Sequential(nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Upsample(scale_factor=2), nn.Conv2d(8, 4, 3)),
        (IMAGE,),
    ),
    # Nothing but a number is stored.
    "zeros around it": (lambda: Computed(lambda x: F.pad(x, (1, 1, 2, 0), mode="circular")), (IMAGE,)),
    "NaN where it is NaN": (lambda: Computed(lambda x: torch.xlogy(x, x.abs() + 1)), (IMAGE,)),
    # Its sums, and torch's bias, are float32 before they are rounded.
    "1x1 convolution": (lambda: nn.Conv2d(8, 8, 1), (IMAGE,)),
    "1x1 convolution of every second pixel": (lambda: nn.Conv2d(8, 8, 1, 2), (IMAGE,)),
    "1x1 convolution in groups": (lambda: nn.Conv2d(8, 8, 1, groups=2), (IMAGE,)),
    "convolution of one tap": (lambda: nn.Conv1d(8, 8, 1), (IMAGE.flatten(2),)),
}


_ROUNDED = ("1x1 convolution", "convolution of one tap")
"""How the names begin of those whose sums are rounded, which differ by the numbers; others have float32 and one that is
narrow."""
PAIRS = [
    (name, dtype)
    for place, name in enumerate(CASES)
    for dtype in (_BOUND if name.startswith(_ROUNDED) else (torch.float32, (torch.float16, torch.bfloat16)[place % 2]))
]


@pytest.mark.parametrize(("name", "dtype"), PAIRS)
def test_it_is_what_float64_says(name: str, dtype: torch.dtype) -> None:
    make, given = CASES[name]
    torch.manual_seed(2291)
    module = make().eval().requires_grad_(requires_grad=False).to(dtype)
    inputs = tuple(_as(each, dtype) for each in given)
    compiled = fusion.compile((module, inputs), target="cuda -arch=sm_80", cache=False)
    found = run_planned(compiled, *(_as_numpy(each) for each in inputs))
    wide = copy.deepcopy(module).double()(*(_as(each, torch.float64) for each in inputs))
    for one, expected in zip(found, [wide] if isinstance(wide, Tensor) else wide, strict=True):
        largest = float(expected.abs().max())
        np.testing.assert_allclose(
            one.astype(np.float64), expected.numpy(), rtol=0, atol=_BOUND[dtype] * largest
        )


def _as(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def _as_numpy(tensor: Tensor) -> np.ndarray:
    return tensor.float().numpy().astype(ml_dtypes.bfloat16) if tensor.dtype == torch.bfloat16 else tensor.numpy()
