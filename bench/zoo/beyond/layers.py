"""What several networks of this folder are put together from."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


class TypedModule(nn.Module):  # type: ignore[misc]
    """A torch module; torch's own class has no types here."""


def conv_norm(
    inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1, dilation: int = 1
) -> nn.Sequential:
    """Return a convolution, padded to keep the size at stride 1, and batch norm."""
    padding = dilation * (kernel - 1) // 2
    conv = nn.Conv2d(inputs, outputs, kernel, stride, padding, dilation, groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


def conv_norm_act(
    inputs: int,
    outputs: int,
    kernel: int = 3,
    stride: int = 1,
    groups: int = 1,
    dilation: int = 1,
    act: Callable[[], nn.Module] = nn.ReLU,
) -> nn.Sequential:
    """Return `conv_norm` and an activation."""
    return nn.Sequential(
        conv_norm(inputs, outputs, kernel=kernel, stride=stride, groups=groups, dilation=dilation), act()
    )


class SqueezeExcite(TypedModule):
    """Channels weighted by what all pixels together say (Hu et al., "Squeeze-and-excitation networks", CVPR 2018)."""

    def __init__(self, channels: int, reduction: int = 4, act: Callable[[], nn.Module] = nn.SiLU) -> None:
        super().__init__()
        squeezed = channels // reduction
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, squeezed, 1), act(), nn.Conv2d(squeezed, channels, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.gate(x))
