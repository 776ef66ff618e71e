"""The decoder of a language model, as LLaMA has it (Touvron et al., 2023), over a whole prompt."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.zoo.beyond.layers import TypedModule

# What is added to the scores of tokens to come.
_MASKED = -1e9


class _RMSNorm(TypedModule):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size).uniform_(0.8, 1.2))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class _Attention(TypedModule):
    """Causal attention with rotary positions (Su et al., 2021), each key and value shared by a group of queries."""

    def __init__(self, size: int, heads: int, groups: int, tokens: int) -> None:
        super().__init__()
        self.heads, self.groups, self.width = heads, groups, size // heads
        self.query, self.leave = nn.Linear(size, size, bias=False), nn.Linear(size, size, bias=False)
        self.key, self.value = (nn.Linear(size, groups * self.width, bias=False) for _ in range(2))
        frequencies = 1 / 10000 ** (torch.arange(0, self.width, 2) / self.width)
        angles = torch.outer(torch.arange(tokens), frequencies).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        self.register_buffer("mask", torch.triu(torch.full((tokens, tokens), _MASKED), 1))

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, size = x.shape
        query = self._rotate(self._split(self.query(x), self.heads))
        key = self._rotate(self._split(self.key(x), self.groups))
        value = self._split(self.value(x), self.groups)
        scores = query @ self._shared(key).transpose(-1, -2) * self.width**-0.5 + self.mask
        mixed = torch.softmax(scores, -1) @ self._shared(value)
        return self.leave(mixed.transpose(1, 2).reshape(batch, tokens, size))

    def _split(self, x: Tensor, heads: int) -> Tensor:
        return x.reshape(*x.shape[:2], heads, self.width).transpose(1, 2)

    def _rotate(self, x: Tensor) -> Tensor:
        left, right = x.chunk(2, -1)
        return x * self.cos + torch.cat([-right, left], -1) * self.sin

    def _shared(self, x: Tensor) -> Tensor:
        batch, groups, tokens, width = x.shape
        times = self.heads // groups
        return x[:, :, None].expand(batch, groups, times, tokens, width).reshape(batch, self.heads, tokens, width)


class _Block(TypedModule):
    def __init__(self, size: int, heads: int, groups: int, hidden: int, tokens: int) -> None:
        super().__init__()
        self.attention_norm, self.attention = _RMSNorm(size), _Attention(size, heads, groups, tokens)
        self.mlp_norm = _RMSNorm(size)
        self.gate, self.up = nn.Linear(size, hidden, bias=False), nn.Linear(size, hidden, bias=False)
        self.down = nn.Linear(hidden, size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        y = self.mlp_norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(TypedModule):
    """Four blocks of width 512: eight heads of queries, four of keys and values, a gated MLP."""

    def __init__(self, tokens: int = 64, size: int = 512) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(_Block(size, 8, 4, 1376, tokens) for _ in range(4)))
        self.norm = _RMSNorm(size)

    def forward(self, sequence: Tensor) -> Tensor:
        return self.norm(self.blocks(sequence))
