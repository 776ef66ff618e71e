"""Networks that say something about every place of an image: detectors, segmenters, pose estimators."""

from __future__ import annotations

import functools
import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.zoo.beyond.layers import TypedModule, conv_norm_act

_conv_silu = functools.partial(conv_norm_act, act=nn.SiLU)


def _two_convs(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(conv_norm_act(inputs, outputs), conv_norm_act(outputs, outputs))


class UNet(TypedModule):
    """Three levels down and, by transposed convolutions, up again (Ronneberger et al., MICCAI 2015)."""

    def __init__(self, widths: tuple[int, ...] = (32, 64, 128, 256), classes: int = 5) -> None:
        super().__init__()
        levels = list(itertools.pairwise(widths))
        self.stem = _two_convs(3, widths[0])
        self.down = nn.ModuleList(nn.Sequential(nn.MaxPool2d(2), _two_convs(fine, coarse)) for fine, coarse in levels)
        self.up = nn.ModuleList(nn.ConvTranspose2d(coarse, fine, 2, 2) for fine, coarse in reversed(levels))
        self.merge = nn.ModuleList(_two_convs(2 * fine, fine) for fine, _ in reversed(levels))
        self.head = nn.Conv2d(widths[0], classes, 1)

    def forward(self, image: Tensor) -> Tensor:
        features = [self.stem(image)]
        for down in self.down:
            features.append(down(features[-1]))
        x = features.pop()
        for up, merge in zip(self.up, self.merge, strict=True):
            x = merge(torch.cat([features.pop(), up(x)], 1))
        return self.head(x)


class _CrossStage(TypedModule):
    """YOLOv5's C3: half of the channels go past the bottlenecks."""

    def __init__(self, inputs: int, outputs: int, bottlenecks: int) -> None:
        super().__init__()
        hidden = outputs // 2
        self.enter, self.past = _conv_silu(inputs, hidden, 1), _conv_silu(inputs, hidden, 1)
        self.leave = _conv_silu(2 * hidden, outputs, 1)
        self.bottlenecks = nn.ModuleList(
            nn.Sequential(_conv_silu(hidden, hidden, 1), _conv_silu(hidden, hidden)) for _ in range(bottlenecks)
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.enter(x)
        for bottleneck in self.bottlenecks:
            y = y + bottleneck(y)
        return self.leave(torch.cat([y, self.past(x)], 1))


class _PyramidPooling(TypedModule):
    """YOLOv5's SPPF: the maximum over windows of three sizes, each from the one before."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.enter, self.leave = _conv_silu(channels, channels // 2, 1), _conv_silu(2 * channels, channels, 1)
        self.pool = nn.MaxPool2d(5, 1, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x)
        first = self.pool(x)
        second = self.pool(first)
        return self.leave(torch.cat([x, first, second, self.pool(second)], 1))


class YOLOv5(TypedModule):
    """The backbone of YOLOv5n and two of its three scales; (batch, boxes, 5 + 80 classes) of sigmoids."""

    def __init__(self, anchors: int = 3, values: int = 85) -> None:
        super().__init__()
        self.values = values
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 6, 2, 2, bias=False), nn.BatchNorm2d(16), nn.SiLU())
        stages = [(16, 32, 1), (32, 64, 2), (64, 128, 3), (128, 256, 1)]
        self.stages = nn.ModuleList(nn.Sequential(_conv_silu(a, b, 3, 2), _CrossStage(b, b, n)) for a, b, n in stages)
        self.pooling = _PyramidPooling(256)
        self.lateral, self.merge = _conv_silu(256, 128, 1), _CrossStage(256, 128, 1)
        self.fine, self.coarse = nn.Conv2d(128, anchors * values, 1), nn.Conv2d(256, anchors * values, 1)

    def forward(self, image: Tensor) -> Tensor:
        features = [self.stem(image)]
        for stage in self.stages:
            features.append(stage(features[-1]))
        coarse = self.pooling(features[-1])
        upsampled = F.interpolate(self.lateral(coarse), scale_factor=2.0, mode="nearest")
        fine = self.merge(torch.cat([upsampled, features[-2]], 1))
        return torch.cat([self._boxes(self.fine(fine)), self._boxes(self.coarse(coarse))], 1)

    def _boxes(self, x: Tensor) -> Tensor:
        x = x.sigmoid().reshape(x.shape[0], -1, self.values, x.shape[2] * x.shape[3])
        return x.transpose(2, 3).reshape(x.shape[0], -1, self.values)


class _Exchange(TypedModule):
    """One step at two resolutions, and what each adds to the other."""

    def __init__(self, fine: int, coarse: int) -> None:
        super().__init__()
        self.fine, self.coarse = _two_convs(fine, fine), _two_convs(coarse, coarse)
        self.up, self.down = nn.Conv2d(coarse, fine, 1), conv_norm_act(fine, coarse, 3, 2)

    def forward(self, fine: Tensor, coarse: Tensor) -> tuple[Tensor, Tensor]:
        fine, coarse = fine + self.fine(fine), coarse + self.coarse(coarse)
        up = F.interpolate(self.up(coarse), scale_factor=2.0, mode="bilinear", align_corners=False)
        return F.relu(fine + up), F.relu(coarse + self.down(fine))


class HRNet(TypedModule):
    """Two resolutions side by side, three exchanges, 17 key points (Sun et al., CVPR 2019)."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv_norm_act(3, width, 3, 2), conv_norm_act(width, width, 3, 2))
        self.transition = conv_norm_act(width, 2 * width, 3, 2)
        self.exchanges = nn.ModuleList(_Exchange(width, 2 * width) for _ in range(3))
        self.head = nn.Conv2d(width, 17, 1)

    def forward(self, image: Tensor) -> Tensor:
        fine = self.stem(image)
        coarse = self.transition(fine)
        for exchange in self.exchanges:
            fine, coarse = exchange(fine, coarse)
        return self.head(fine)


class DeepLab(TypedModule):
    """Atrous spatial pyramid pooling over features of stride 8 (Chen et al., "Rethinking atrous convolution", 2017)."""

    def __init__(self, classes: int = 21) -> None:
        super().__init__()
        self.backbone = nn.Sequential(
            conv_norm_act(3, 32, 3, 2),
            conv_norm_act(32, 64, 3, 2),
            conv_norm_act(64, 128, 3, 2),
            conv_norm_act(128, 128),
        )
        atrous = (conv_norm_act(128, 64, dilation=rate) for rate in (6, 12, 18))
        self.pyramid = nn.ModuleList([conv_norm_act(128, 64, 1), *atrous])
        self.head = nn.Conv2d(4 * 64, classes, 1)

    def forward(self, image: Tensor) -> Tensor:
        x = self.backbone(image)
        x = self.head(torch.cat([level(x) for level in self.pyramid], 1))
        return F.interpolate(x, scale_factor=8.0, mode="bilinear", align_corners=True)
