"""torch's `grid_sample` was some 60 operators, of which there is no form for all sizes; it is one now, as ONNX's is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import fusion

pytestmark = pytest.mark.unoptimised


class Sampled(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, padding: str) -> None:
        super().__init__()
        self.padding = padding

    def forward(self, x: Any, grid: Any) -> Any:
        return torch.nn.functional.grid_sample(x, grid, padding_mode=self.padding, align_corners=False)


@pytest.mark.parametrize("padding", ["zeros", "border"])
def test_one_form_samples_images_of_all_sizes(padding: str) -> None:
    def drawn(batch: int, height: int, places: int) -> tuple[Any, Any]:
        generator = torch.Generator().manual_seed(height)
        image = torch.randn((batch, 9, height, 11), generator=generator)
        return image, torch.rand((batch, places, 5, 2), generator=generator) * 2.6 - 1.3

    Dim, module = torch.export.Dim, Sampled(padding)
    batch = Dim("batch", max=8)
    dims = {0: batch, 2: Dim("height", max=40)}, {0: batch, 1: Dim("places", max=40)}
    compiled = fusion.compile((module, drawn(2, 12, 7)), dynamic_shapes=dims, threads=1, wait=True)
    for sizes in ((2, 12, 7), (3, 5, 20), (1, 33, 1)):
        x, grid = drawn(*sizes)
        (found,) = compiled(x.numpy(), grid.numpy())
        np.testing.assert_allclose(found, module(x.double(), grid.double()).numpy(), atol=2e-5)
    assert len(compiled.specializations) == 1
