"""TVM's importer drops arguments of PyTorch's operators (the factor of SELU, `alpha` of additions, the divisor of a
pool), and makes arithmetic of bools that LLVM refuses."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch.nn import functional

import fusion

CASES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "selu": lambda x, y: functional.selu(y),
    "elu": lambda x, y: torch.ops.aten.elu.default(y, 1.5, 1.2, 0.7),
    "celu": lambda x, y: functional.celu(y, 2.0),
    "softplus": lambda x, y: functional.softplus(y, 2.0, 3.0),
    "hardtanh": lambda x, y: functional.hardtanh(y, -2.0, 0.5),
    "leaky_relu": lambda x, y: functional.leaky_relu(y, 0.3),
    "hardshrink": lambda x, y: functional.hardshrink(y, 0.7),
    "softshrink": lambda x, y: functional.softshrink(y, 0.7),
    "threshold": lambda x, y: functional.threshold(y, 0.5, -3.0),
    "gelu_tanh": lambda x, y: functional.gelu(y, approximate="tanh"),
    "add": lambda x, y: torch.add(y, y.abs(), alpha=2.0),
    "subtract": lambda x, y: torch.sub(y, y.abs(), alpha=2.0),
    "subtract_turned": lambda x, y: torch.rsub(y, 3.0, alpha=2.0),
    "addmm": lambda x, y: torch.addmm(y, y[:, :6], y[:6], beta=0.5, alpha=2.0),
    "addcmul": lambda x, y: torch.addcmul(y, y, y, value=0.3),
    "average": lambda x, y: functional.avg_pool2d(y[None], (2, 3), divisor_override=5),
    "group_norm": lambda x, y: functional.group_norm(y[:, :16, None], 4, eps=0.1),
    "sinh": lambda x, y: torch.sinh(y),
    "cosh": lambda x, y: torch.cosh(y),
    "logaddexp": torch.logaddexp,
    "cumsum": lambda x, y: torch.cumsum(y, 1),
    "isfinite": lambda x, y: torch.isfinite(x),
    "itself": lambda x, y: x == x,
    "unequal": lambda x, y: x != x,
    "not_less": lambda x, y: ~(x < y),
    "equal_bools": lambda x, y: (x > 0) == (y > 0),
    "unequal_bools": lambda x, y: (x > 0) != (y > 0),
    "product_of_bools": lambda x, y: (x > 0) * (y > 0),
    "maximum": lambda x, y: torch.max(x, 1)[0],
    "sorted": lambda x, y: torch.sort(x, 1)[0],
    "rounded": lambda x, y: x.to(torch.bfloat16).to(torch.float32),
}


class Cases(torch.nn.Module):
    """All cases at once: one model compiles faster than thirty."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the result of each case."""
        return tuple(case(x, y) for case in CASES.values())


def test_arguments() -> None:
    rng = np.random.default_rng(0)
    y = (rng.standard_normal((6, 17)) * 3).astype(np.float32)
    x = np.where(rng.random(y.shape) < 0.2, rng.choice([np.nan, np.inf, -np.inf], y.shape), y).astype(np.float32)
    expected = Cases()(torch.from_numpy(x), torch.from_numpy(y))
    made = fusion.compile((Cases(), (torch.from_numpy(x), torch.from_numpy(y)))).run({"x": x, "y": y})
    for name, found, want in zip(CASES, made.values(), expected, strict=True):
        np.testing.assert_allclose(found, want.numpy(), rtol=3e-5, atol=1e-5, err_msg=name)
