"""Networks that make an image."""

from __future__ import annotations

import itertools

from torch import Tensor, nn

from bench.zoo.beyond.layers import TypedModule


class SuperResolution(TypedModule):
    """SRResNet, three blocks without batch norm, channels shuffled into pixels (Ledig et al., CVPR 2017)."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 9, padding=4)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.PReLU(), nn.Conv2d(width, width, 3, padding=1))
            for _ in range(3)
        )
        self.up = nn.Sequential(nn.Conv2d(width, 4 * width, 3, padding=1), nn.PixelShuffle(2), nn.PReLU())
        self.head = nn.Conv2d(width, 3, 9, padding=4)

    def forward(self, image: Tensor) -> Tensor:
        x = first = self.stem(image)
        for block in self.blocks:
            x = x + block(x)
        return self.head(self.up(x + first))


def _reflected_conv(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(inputs, outputs, kernel, stride)
    return nn.Sequential(nn.ReflectionPad2d(kernel // 2), conv, nn.InstanceNorm2d(outputs, affine=True))


class StyleTransfer(TypedModule):
    """Convolutions on reflected borders with instance norm, three residual blocks (Johnson et al., ECCV 2016)."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        wide = 2 * width
        self.encoder = nn.Sequential(
            _reflected_conv(3, width, 9), nn.ReLU(), _reflected_conv(width, wide, 3, 2), nn.ReLU()
        )
        self.blocks = nn.ModuleList(
            nn.Sequential(_reflected_conv(wide, wide, 3), nn.ReLU(), _reflected_conv(wide, wide, 3)) for _ in range(3)
        )
        self.decoder = nn.Sequential(nn.Upsample(scale_factor=2.0), nn.ReflectionPad2d(4), nn.Conv2d(wide, 3, 9))

    def forward(self, image: Tensor) -> Tensor:
        x = self.encoder(image)
        for block in self.blocks:
            x = x + block(x)
        return self.decoder(x)


class DCGAN(TypedModule):
    """The generator: noise to 64x64 pixels by transposed convolutions (Radford et al., ICLR 2016)."""

    def __init__(self, noise: int = 100, widths: tuple[int, ...] = (256, 128, 64, 32)) -> None:
        super().__init__()
        self.widest = widths[0]
        self.project = nn.Linear(noise, 4 * 4 * self.widest)
        up = (
            nn.Sequential(nn.ConvTranspose2d(a, b, 4, 2, 1), nn.BatchNorm2d(b), nn.ReLU())
            for a, b in itertools.pairwise(widths)
        )
        self.up = nn.Sequential(*up, nn.ConvTranspose2d(widths[-1], 3, 4, 2, 1), nn.Tanh())

    def forward(self, noise: Tensor) -> Tensor:
        return self.up(self.project(noise).reshape(-1, self.widest, 4, 4))
