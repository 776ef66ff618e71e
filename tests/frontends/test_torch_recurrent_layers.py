"""LSTM, GRU and RNN of torch end in one kernel a layer, and are as right as torch's in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fusion
from fusion.errors import UnsupportedOperatorError

torch = pytest.importorskip("torch")
nn = torch.nn

STEPS, BATCH, INPUT, HIDDEN = 7, 3, 6, 5
X = torch.randn(STEPS, BATCH, INPUT, generator=torch.Generator().manual_seed(0))


def results(values: Any) -> list[Any]:
    """Return the tensors in nested tuples."""
    return [leaf for value in values for leaf in (results(value) if isinstance(value, tuple) else [value])]


def compiled(module: Any, *inputs: Any, tolerance: float = 1e-6) -> fusion.CompiledModule:
    """Return the module of torch's, compiled, after its results were compared with float64."""
    made = fusion.compile((module.eval(), inputs), strict=True)
    found = made(*inputs)
    with torch.no_grad():
        expected = results(module.double()(*(value.double() for value in inputs)))
    assert [value.shape for value in found] == [tuple(value.shape) for value in expected]
    for value, right in zip(found, expected, strict=True):
        np.testing.assert_allclose(value.astype("float64"), right.numpy(), rtol=tolerance, atol=tolerance)
    return made


def kernels(made: fusion.CompiledModule) -> int:
    """Return how many kernels of recurrences there are; layers of the same sizes have one."""
    (form,) = made.specializations
    return [kernel.template for kernel in form.kernels.values()].count("recurrent")


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize(
    "options",
    [{}, {"bias": False, "batch_first": True}, {"bidirectional": True, "num_layers": 3, "dropout": 0.5}],
)
def test_layers_are_calls_of_a_kernel(kind: Any, options: dict[str, Any]) -> None:
    torch.manual_seed(1)
    assert kernels(compiled(kind(INPUT, HIDDEN, **options), X)) == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype: Any) -> None:
    """Steps that round would add to what all later ones read."""
    torch.manual_seed(2)
    compiled(nn.GRU(INPUT, HIDDEN).to(dtype), X.to(dtype), tolerance=1.01 * torch.finfo(dtype).eps)


def test_states_and_weights_of_the_run() -> None:
    class Given(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, state: Any, *weights: Any) -> Any:
            return torch.gru(x, state, weights, True, 1, 0.0, False, True, False)

    torch.manual_seed(3)
    sizes = ((3 * HIDDEN, INPUT), (3 * HIDDEN, HIDDEN), (3 * HIDDEN,), (3 * HIDDEN,)) * 2
    assert kernels(compiled(Given(), X, torch.randn(2, BATCH, HIDDEN), *(torch.randn(*size) for size in sizes))) == 1


def test_any_number_of_sequences() -> None:
    torch.manual_seed(4)
    module = nn.LSTM(INPUT, HIDDEN, bidirectional=True).eval()
    batch = {1: torch.export.Dim("batch", max=64)}
    made = fusion.compile((module, (X,)), dynamic_shapes=(batch,), wait=True, strict=True)
    for count in (1, BATCH, 20):
        x = torch.randn(STEPS, count, INPUT)
        with torch.no_grad():
            expected = results(module(x))
        for value, right in zip(made(x), expected, strict=True):
            np.testing.assert_allclose(value, right.numpy(), rtol=2e-6, atol=2e-6)
    assert kernels(made) == 1


def test_projected_states_are_written_out() -> None:
    torch.manual_seed(5)
    assert kernels(compiled(nn.LSTM(INPUT, HIDDEN, proj_size=2), X)) == 0


def test_dropping_out_is_refused() -> None:
    class Dropping(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.LSTM(INPUT, HIDDEN, 2)

        def forward(self, x: Any) -> Any:
            states = torch.zeros(2, BATCH, HIDDEN)
            return torch.lstm(x, (states, states), self.layers._flat_weights, True, 2, 0.5, True, False, False)

    with pytest.raises(UnsupportedOperatorError, match="it draws random numbers"):
        fusion.compile((Dropping(), (X,)))
