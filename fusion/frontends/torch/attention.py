"""torch's attention as two products with the softmax of their scores between them, of which backends make one kernel.

    scores = query @ key^T * scale, -inf where the mask drops a key, or + mask
    weights = exp(scores - max(their maximum, the least number)) / max(their sum, the least normal number)
    result = weights @ value

A row of which every score is -inf has weights of 0, as torch has it; the two bounds change no other. torch's own
decomposition scales queries and keys apart and asks of all scores whether a row has any: more than a softmax, and
both stand between the products.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Return the attention of [..., heads, length, width]; heads that share keys are rows of one attention, so that
    keys and values stay as they are."""
    length, width, keys = query.shape[-2], query.shape[-1], key.shape[-2]
    if dropout_p or not query.dtype.is_floating_point or not isinstance(width, int) or 0 in (width, keys):
        return NotImplemented
    if enable_gqa and key.shape[-3] != value.shape[-3]:  # whose heads are rows of no one attention
        key, value = (side.repeat_interleave(query.shape[-3] // side.shape[-3], -3) for side in (key, value))
    factor = 1 / math.sqrt(width) if scale is None else scale
    is_half = query.dtype == torch.float16  # whose scores may overflow without the scale
    rows, mask = query * factor if is_half else query, attn_mask
    if is_causal:
        mask = torch.arange(keys)[None, :] <= torch.arange(length)[:, None]
    shared = query.shape[-3] // key.shape[-3] if enable_gqa else 1
    if shared > 1:
        rows, mask = _as_rows(rows, shared), None if mask is None else _of_rows(mask, query, shared)
    scores = torch.matmul(rows, key.transpose(-2, -1))
    if not is_half:
        scores = scores * factor
    if mask is not None:
        scores = torch.where(mask, scores, -math.inf) if mask.dtype == torch.bool else scores + mask
    found = torch.matmul(_weights(scores), value)
    if shared > 1:
        found = found.reshape([*query.shape[:-1], value.shape[-1]])
    return _laid_out(found, query, attn_mask)


def _weights(scores: Tensor) -> Tensor:
    wide = scores.float() if scores.dtype.itemsize < 4 else scores
    numbers = torch.finfo(wide.dtype)
    grown = torch.exp(wide - wide.amax(-1, keepdim=True).clamp(min=numbers.min))
    return (grown / grown.sum(-1, keepdim=True).clamp(min=numbers.tiny)).to(scores.dtype)


def _as_rows(query: Tensor, shared: int) -> Tensor:
    """Return queries of so many heads that share keys as rows behind one another."""
    *lead, heads, length, width = query.shape
    return query.reshape([*lead, heads // shared, shared * length, width])


def _of_rows(mask: Tensor, query: Tensor, shared: int) -> Tensor:
    """Return what each row of `query` has, where heads are rows: the same for heads that the mask does not tell
    apart."""
    heads, length = query.shape[-3:-1]
    *lead, of_heads, _, keys = [1] * (3 - mask.ndim) + list(mask.shape)
    own = mask.expand([*lead, of_heads, length, keys])
    if of_heads != heads:
        own = own.unsqueeze(-3).expand([*lead, 1, shared, length, keys])
    return own.reshape([*lead, heads // shared if of_heads == heads else 1, shared * length, keys])


def _laid_out(found: Tensor, query: Tensor, mask: Tensor | None) -> Tensor:
    """Return `found` in the memory that torch's operator gives it, for views of it are written through: its kernel for
    four axes lays results out as queries are, often with positions before heads; its other form in order."""
    is_of_kernel = query.ndim == 4 and query.shape == found.shape and (mask is None or mask.ndim in (2, 4))
    if is_of_kernel and query.stride(-1) == 1 and torch.empty_like(query).transpose(1, 2).is_contiguous():
        return found.transpose(1, 2).contiguous().transpose(1, 2)
    return found


RULES = {aten.scaled_dot_product_attention.default: _attention}
