"""Networks that say what an image, a clip or a cloud of points is."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.zoo.beyond.layers import SqueezeExcite, TypedModule, conv_norm, conv_norm_act

_LABELS = 1000
# Expansion, channels, blocks, stride, kernel of each stage of EfficientNet-B0.
_STAGES = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)


class _InvertedResidual(TypedModule):
    def __init__(
        self, inputs: int, outputs: int, expansion: int, kernel: int, stride: int, act: Callable[[], nn.Module]
    ) -> None:
        super().__init__()
        hidden = inputs * expansion
        self.residual = stride == 1 and inputs == outputs
        self.body = nn.Sequential(
            conv_norm_act(inputs, hidden, 1, act=act) if expansion > 1 else nn.Identity(),
            conv_norm_act(hidden, hidden, kernel, stride, groups=hidden, act=act),
            SqueezeExcite(hidden, 4 * expansion, act),
            conv_norm(hidden, outputs, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.residual else self.body(x)


class EfficientNet(TypedModule):
    """EfficientNet-B0 (Tan and Le, ICML 2019), with SiLU or with MobileNetV3's hard swish."""

    def __init__(self, hard: bool = False) -> None:
        super().__init__()
        act = nn.Hardswish if hard else nn.SiLU
        layers, channels = [conv_norm_act(3, 32, stride=2, act=act)], 32
        for expansion, outputs, blocks, stride, kernel in _STAGES:
            for index in range(blocks):
                layers.append(
                    _InvertedResidual(
                        channels, outputs, expansion=expansion, kernel=kernel, stride=1 if index else stride, act=act
                    )
                )
                channels = outputs
        self.features = nn.Sequential(*layers, conv_norm_act(channels, 1280, 1, act=act))
        self.head = nn.Linear(1280, _LABELS)

    def forward(self, image: Tensor) -> Tensor:
        return self.head(self.features(image).mean((2, 3)))


class RepVGG(TypedModule):
    """3x3 convolutions with their branches merged, as RepVGG is deployed (Ding et al., CVPR 2021)."""

    def __init__(self) -> None:
        super().__init__()
        widths = (3, 48, 48, 96, 96, 96, 192, 192, 192, 192, 512)
        strides = (2, 2, 2, 1, 1, 2, 1, 1, 1, 2)
        convs = (nn.Conv2d(a, b, 3, s, 1) for a, b, s in zip(widths[:-1], widths[1:], strides, strict=True))
        self.body = nn.Sequential(*(nn.Sequential(conv, nn.ReLU()) for conv in convs))

    def forward(self, image: Tensor) -> Tensor:
        return self.body(image).mean((2, 3))


class _ResNeXtBlock(TypedModule):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        hidden = outputs // 2
        self.body = nn.Sequential(
            conv_norm_act(inputs, hidden, 1),
            conv_norm_act(hidden, hidden, 3, stride, groups=32),
            conv_norm(hidden, outputs, 1),
            SqueezeExcite(outputs, 16, nn.ReLU),
        )
        self.shortcut = nn.Identity() if inputs == outputs else conv_norm(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.shortcut(x))


class SEResNeXt(TypedModule):
    """Bottlenecks of 32 groups with squeeze and excite, two a stage (Hu et al., CVPR 2018)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv_norm_act(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1))
        widths, strides = (64, 128, 128, 256, 256, 512, 512), (1, 1, 2, 1, 2, 1)
        blocks = (_ResNeXtBlock(a, b, s) for a, b, s in zip(widths[:-1], widths[1:], strides, strict=True))
        self.body = nn.Sequential(*blocks)

    def forward(self, image: Tensor) -> Tensor:
        return self.body(self.stem(image)).mean((2, 3))


def _norm_act_conv(inputs: int, outputs: int, kernel: int) -> nn.Sequential:
    conv = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False)
    return nn.Sequential(nn.BatchNorm2d(inputs), nn.ReLU(), conv)


class _DenseLayer(TypedModule):
    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.body = nn.Sequential(_norm_act_conv(inputs, 4 * growth, 1), _norm_act_conv(4 * growth, growth, 3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.body(x)], 1)


class DenseNet(TypedModule):
    """Three blocks of six layers, each reading all before it (Huang et al., CVPR 2017)."""

    def __init__(self, growth: int = 16) -> None:
        super().__init__()
        layers, channels = [conv_norm_act(3, 32, 7, 2)], 32
        for _ in range(3):
            layers += [_DenseLayer(channels + index * growth, growth) for index in range(6)]
            channels += 6 * growth
            layers.append(nn.Sequential(_norm_act_conv(channels, channels // 2, 1), nn.AvgPool2d(2)))
            channels //= 2
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(channels, _LABELS)

    def forward(self, image: Tensor) -> Tensor:
        return self.head(self.features(image).mean((2, 3)))


def _mlp(size: int, hidden: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(size, hidden), nn.GELU(), nn.Linear(hidden, size))


class _MixerLayer(TypedModule):
    def __init__(self, tokens: int, channels: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(channels), nn.LayerNorm(channels)])
        self.across, self.within = _mlp(tokens, 128), _mlp(channels, 4 * channels)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.across(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        return x + self.within(self.norms[1](x))


class MLPMixer(TypedModule):
    """Six layers of MLPs across and within 14x14 patches (Tolstikhin et al., NeurIPS 2021)."""

    def __init__(self, channels: int = 256) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, channels, 16, 16)
        self.layers = nn.Sequential(*(_MixerLayer(14 * 14, channels) for _ in range(6)))
        self.head = nn.Sequential(nn.LayerNorm(channels), nn.Linear(channels, _LABELS))

    def forward(self, image: Tensor) -> Tensor:
        return self.head(self.layers(self.patches(image).flatten(2).transpose(1, 2))).mean(1)


class PointNet(TypedModule):
    """One MLP for every point, and the largest of each feature (Qi et al., CVPR 2017), without its transforms."""

    def __init__(self) -> None:
        super().__init__()
        widths = (3, 64, 128, 512)
        shared = ((nn.Conv1d(a, b, 1), nn.BatchNorm1d(b), nn.ReLU()) for a, b in itertools.pairwise(widths))
        self.shared = nn.Sequential(*(layer for layers in shared for layer in layers))
        self.head = nn.Sequential(nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 40))

    def forward(self, points: Tensor) -> Tensor:
        return self.head(self.shared(points).amax(2))


class Conv3d(TypedModule):
    """Three 3x3x3 convolutions over a clip, as in C3D (Tran et al., ICCV 2015)."""

    def __init__(self) -> None:
        super().__init__()
        convs = (nn.Conv3d(3, 16, 3, 1, 1), nn.Conv3d(16, 32, 3, 2, 1), nn.Conv3d(32, 32, 3, 1, 1))
        self.body = nn.Sequential(*(nn.Sequential(conv, nn.ReLU()) for conv in convs))

    def forward(self, clip: Tensor) -> Tensor:
        return self.body(clip).mean((2, 3, 4))
