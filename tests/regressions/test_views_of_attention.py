"""Results of attention are laid out as torch's operator has them, so that views of them are views here too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import fusion
from fusion.errors import UnsupportedOperatorError
from fusion.frontends.torch.decompositions import decompositions

pytestmark = pytest.mark.unoptimised

WIDTH, HEADS = 32, 2


def _heads(x: Tensor) -> Tensor:
    return x.view(x.shape[0], x.shape[1], HEADS, WIDTH // HEADS).transpose(1, 2)


class Attention(torch.nn.Module):
    """Attention, and a layer of what `see` makes of its result."""

    def __init__(self, see: Callable[[Tensor], Tensor], **options: Any) -> None:
        super().__init__()
        self.see, self.options, self.layer = see, options, torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        heads = _heads(x)
        mixed = F.scaled_dot_product_attention(heads, heads, heads, **self.options).transpose(1, 2)
        return self.layer(self.see(mixed)).view(x.shape)


def rows(seen: Tensor) -> Tensor:
    """Return the positions of all sequences, one after the other."""
    return seen.reshape(seen.shape[0], seen.shape[1], WIDTH).view(-1, WIDTH)


def written_to(seen: Tensor) -> Tensor:
    """Return the same after a write through a view."""
    joined = seen.reshape(seen.shape[0], seen.shape[1], WIDTH).clone()
    joined.view(-1, WIDTH)[::2].mul_(3)
    return joined


def written_through(seen: Tensor) -> Tensor:
    """Return the same after a write through a view of the result itself."""
    joined = seen.reshape(seen.shape[0], seen.shape[1], WIDTH)
    joined.view(-1, WIDTH).mul_(3)
    return joined + seen.reshape(seen.shape[0], seen.shape[1], WIDTH)


CASES = {
    "rows": (rows, {}),
    "causal": (rows, {"is_causal": True}),
    "mask": (rows, {"attn_mask": torch.ones(6, 6).tril() > 0}),
    "scale": (rows, {"scale": 0.3}),
    "written to": (written_to, {}),
    "written through": (written_through, {}),
}


def _agree(module: fusion.CompiledModule, reference: torch.nn.Module, *shape: int) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(shape[0]))
    (found,) = module(x)
    with torch.no_grad():
        np.testing.assert_allclose(found, reference(x).numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_of_several_sequences(name: str) -> None:
    see, options = CASES[name]
    attention = Attention(see, **options)
    _agree(fusion.compile((attention, (torch.ones(3, 6, WIDTH),)), threads=1), attention, 3, 6, WIDTH)


def test_with_open_dimensions() -> None:
    attention = Attention(rows, is_causal=True)
    sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}
    module = fusion.compile((attention, (torch.ones(2, 4, WIDTH),)), threads=1, dynamic_shapes=(sizes,))
    _agree(module, attention, 1, 5, WIDTH)
    _agree(module, attention, 3, 9, WIDTH)


def test_of_a_layer_of_torch() -> None:
    layer = torch.nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, batch_first=True).eval()
    _agree(fusion.compile((layer, (torch.ones(3, 6, WIDTH),)), threads=1), layer, 3, 6, WIDTH)


class RowsByIndex(torch.nn.Module):
    """An operator with indices, whose decomposition too lays its result out in another way."""

    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2)[:, [0, 2]].view(-1) * 2


def test_of_rows_by_index() -> None:
    reference = RowsByIndex()
    _agree(fusion.compile((reference, (torch.ones(3, 4, 6, 8),)), threads=1), reference, 3, 4, 6, 8)


class Strided(torch.nn.Module):
    """Reads the memory behind what `see` makes of its input."""

    def __init__(self, see: Callable[[Tensor], Tensor], size: tuple[int, ...], stride: tuple[int, ...]) -> None:
        super().__init__()
        self.see, self.size, self.stride = see, size, stride

    def forward(self, x: Tensor) -> Tensor:
        return self.see(x).as_strided(self.size, self.stride) * 2


def test_memory_of_a_contiguous_tensor() -> None:
    reference = Strided(torch.relu, (5, 3), (2, 1))
    _agree(fusion.compile((reference, (torch.ones(3, 4),)), threads=1), reference, 3, 4)


@pytest.mark.parametrize(
    "see",
    [
        lambda x: x.transpose(0, 1),
        lambda x: x.transpose(0, 1) + 1,
        lambda x: torch.einsum("ij,kj->ik", x, x).t(),
        lambda x: torch.relu(x)[1:],
        lambda x: torch.relu(x)[:2],
    ],
)
def test_memory_in_another_order_is_refused(see: Callable[[Tensor], Tensor]) -> None:
    """The importer took the elements in order, and returned others without a word."""
    with pytest.raises(UnsupportedOperatorError, match="as_strided") as caught:
        fusion.compile((Strided(see, (9,), (1,)), (torch.ones(3, 4),)), threads=1)
    assert "as_strided" in caught.value.where


def test_what_torch_cannot_decompose_has_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> None:
        raise RuntimeError("no view")

    monkeypatch.setitem(decompositions(), torch.ops.aten.view.default, fail)
    with pytest.raises(UnsupportedOperatorError, match="torch cannot decompose") as caught:
        fusion.compile((Attention(rows), (torch.ones(3, 6, WIDTH),)), threads=1)
    assert "test_views_of_attention.py" in caught.value.where
    assert "heads = _heads(x)" in caught.value.where
