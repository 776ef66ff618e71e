"""Networks over time: dilated convolutions, recurrence, linear attention."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.zoo.beyond.layers import TypedModule, conv_norm_act


class _CausalConv(TypedModule):
    def __init__(self, inputs: int, outputs: int, kernel: int, dilation: int) -> None:
        super().__init__()
        self.past = (kernel - 1) * dilation
        self.conv = nn.Conv1d(inputs, outputs, kernel, dilation=dilation)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(F.pad(x, (self.past, 0)))


class TCN(TypedModule):
    """Six residual blocks of two causal convolutions, the dilation doubling (Bai et al., 2018)."""

    def __init__(self, inputs: int = 16, width: int = 64) -> None:
        super().__init__()
        self.stem = nn.Conv1d(inputs, width, 1)
        self.blocks = nn.ModuleList(
            nn.Sequential(_CausalConv(width, width, 3, 2**i), nn.ReLU(), _CausalConv(width, width, 3, 2**i), nn.ReLU())
            for i in range(6)
        )

    def forward(self, signal: Tensor) -> Tensor:
        x = self.stem(signal)
        for block in self.blocks:
            x = F.relu(x + block(x))
        return x


class _GatedConv(TypedModule):
    def __init__(self, width: int, skip: int, dilation: int) -> None:
        super().__init__()
        self.conv = _CausalConv(width, 2 * width, 2, dilation)
        self.residual, self.skip = nn.Conv1d(width, width, 1), nn.Conv1d(width, skip, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        value, gate = self.conv(x).chunk(2, 1)
        gated = torch.tanh(value) * torch.sigmoid(gate)
        return x + self.residual(gated), self.skip(gated)


class WaveNet(TypedModule):
    """Eight gated causal convolutions whose skips are summed (van den Oord et al., 2016)."""

    def __init__(self, width: int = 32, skip: int = 64) -> None:
        super().__init__()
        self.stem = nn.Conv1d(1, width, 1)
        self.layers = nn.ModuleList(_GatedConv(width, skip, 2**i) for i in range(8))
        self.head = nn.Conv1d(skip, 256, 1)

    def forward(self, signal: Tensor) -> Tensor:
        x, skips = self.stem(signal), []
        for layer in self.layers:
            x, skip = layer(x)
            skips.append(skip)
        return self.head(F.relu(torch.stack(skips).sum(0)))


class CRNN(TypedModule):
    """A line of text: convolutions, a GRU both ways along its columns, log probabilities (Shi et al., TPAMI 2017)."""

    def __init__(self, characters: int = 64) -> None:
        super().__init__()
        self.features = nn.Sequential(
            conv_norm_act(1, 32),
            nn.MaxPool2d((2, 1)),
            conv_norm_act(32, 64),
            nn.MaxPool2d((2, 1)),
            conv_norm_act(64, 128, 3, 2),
        )
        self.gru = nn.GRU(128 * 4, 96, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * 96, characters)

    def forward(self, image: Tensor) -> Tensor:
        columns = self.features(image).permute(0, 3, 1, 2).flatten(2)
        return F.log_softmax(self.head(self.gru(columns)[0]), -1)


class BiLSTM(TypedModule):
    """A tagger: two layers of LSTM both ways, and a score for each tag."""

    def __init__(self, size: int = 128, tags: int = 40) -> None:
        super().__init__()
        self.lstm = nn.LSTM(size, size, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * size, tags)

    def forward(self, sequence: Tensor) -> Tensor:
        return self.head(self.lstm(sequence)[0])


class _LinearAttention(TypedModule):
    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.project, self.leave = nn.LayerNorm(size), nn.Linear(size, 3 * size), nn.Linear(size, size)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, size = x.shape
        parts = self.project(self.norm(x)).reshape(batch, tokens, 3, self.heads, size // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        query, key = F.elu(query) + 1, F.elu(key) + 1
        weights = query @ key.sum(-2, keepdim=True).transpose(-1, -2)
        mixed = query @ (key.transpose(-1, -2) @ value) / weights
        return x + self.leave(mixed.transpose(1, 2).reshape(batch, tokens, size))


class LinearTransformer(TypedModule):
    """Three layers of attention with the feature map elu + 1 in place of softmax (Katharopoulos et al., ICML 2020)."""

    def __init__(self, size: int = 128, heads: int = 4) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(_LinearAttention(size, heads) for _ in range(3)))

    def forward(self, sequence: Tensor) -> Tensor:
        return self.layers(sequence)
