"""Indices of PyTorch's operators that count from the end: what PyTorch refuses, and `x[i]`, which it does not."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fusion
from fusion.errors import ExecutionError


class _Reads(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(5, 3)

    def forward(self, ids: torch.Tensor, rows: torch.Tensor, places: torch.Tensor, at: torch.Tensor) -> object:
        table = self.table.weight
        return self.table(ids), torch.index_select(table, 0, rows), torch.gather(table, 0, places), table[at], table[-1]


GOOD = (np.array([0, 4]), np.array([1, 3]), np.array([[2, 0, 1]]), np.array([-1, 2]))


@pytest.fixture(scope="module")
def program() -> tuple[torch.nn.Module, fusion.CompiledModule]:
    model = _Reads().eval()
    return model, fusion.compile((model, tuple(map(torch.from_numpy, GOOD))))


def test_what_pytorch_reads_is_read(program: tuple[torch.nn.Module, fusion.CompiledModule]) -> None:
    model, compiled = program
    names = [spec.name for spec in compiled.inputs]
    results = compiled.run(dict(zip(names, GOOD, strict=True)))
    for ours, theirs in zip(results.values(), model(*map(torch.from_numpy, GOOD)), strict=True):
        np.testing.assert_array_equal(ours, theirs.detach().numpy())


@pytest.mark.parametrize(("position", "index"), [(0, -1), (1, -2), (2, -1), (3, -6), (0, 5)])
def test_what_pytorch_refuses_is_an_error(
    program: tuple[torch.nn.Module, fusion.CompiledModule], position: int, index: int
) -> None:
    model, compiled = program
    arrays = [array.copy() for array in GOOD]
    arrays[position].flat[0] = index
    with pytest.raises((IndexError, RuntimeError)):
        model(*map(torch.from_numpy, arrays))
    names = [spec.name for spec in compiled.inputs]
    with pytest.raises(ExecutionError) as caught:
        compiled.run(dict(zip(names, arrays, strict=True)))
    operator, name = ("embedding", "index_select", "gather", "index_select")[position], caught.value.where
    assert name.startswith(f"{operator} '{operator}")
    assert "in forward" in name  # the line of the module's source
