"""Weights that are packed before the run in the order of tiles of AMX, so that tasks need not prepare them.

    [strip of k][vector][step][term][k / 2][channel]    of float32 terms, pairs of bfloat16 as words: half as much again
    [strip of k][vector][step][k / 4][channel][k % 4]   of bytes
    a vector of words behind them                       `NOT_FINITE` where a weight of float32 is not, else 0
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import tirx
from tvm.ir import Var

from backends.cpu import amx
from backends.cpu.kernels.shared.contraction import Contraction, tile_steps
from backends.cpu.kernels.shared.tile_products import LANES, NOT_FINITE, TileSteps, TileWeights
from backends.tensorir.result import Repack, Scheduled

Array = npt.NDArray[Any]
Words = npt.NDArray[np.uint32]

_FIRST_TERM = np.uint32(0xFFFF0000)
"""Of the bits of a float32, those of its first term."""

_NOT_A_NUMBER = np.uint32(0x7FC00000)
_BLOCK_ELEMENTS = 1 << 17
"""How many are packed at a time: 512 KiB of float32."""


@dataclass(frozen=True)
class TilePacking:
    """Packs the panels of a product.

    Attributes:
        steps: Of k.
    """

    steps: TileSteps

    def __call__(self, panels: Array) -> Array:
        """Return float32[..., vectors, taps..., depth, 16] as words, float32 by name, or bytes [..., vectors, taps...,
        depth / 4, 64], with what is behind them."""
        steps, form = self.steps, self.steps.form
        taps, width = steps.count // steps.of_tap, panels.shape[-1]
        together = width // LANES
        many, padded = -(-steps.depth // together), steps.of_tap * form.numbers.depth // together
        values, in_words = panels.reshape(-1, taps, many, width), together == 1
        is_finite = not in_words or bool(np.isfinite(panels).all())
        size = TileWeights.size(len(values), steps)
        packed = np.zeros(size + LANES, np.uint32 if in_words else panels.dtype)
        packed[size:] = 0 if is_finite else NOT_FINITE
        strips = packed[:size].reshape(steps.strips, len(values), form.strip_steps, form.weight_elements)
        # Some vectors at a time, so that what is in between stays in the cache: a third of what all at once take.
        block = max(1, _BLOCK_ELEMENTS // (taps * padded * width))
        whole = np.zeros((block, taps, padded, width), panels.dtype)
        for first in range(0, len(values), block):
            part = values[first : first + block]
            last, filled = first + len(part), whole[: len(part)]
            filled[:, :, :many] = part
            made = _in_words(filled, is_finite=is_finite) if in_words else filled
            made = made.reshape(len(part), steps.count, form.weight_elements)
            for place, strip in enumerate(strips):
                of_strip = made[:, place * form.strip_steps : (place + 1) * form.strip_steps]
                strip[first:last, : of_strip.shape[1]] = of_strip
        return packed.view(form.packed_dtype)


def _in_words(values: Array, *, is_finite: bool) -> Words:
    """Return the terms of float32[..., depth, 16] in words of two elements of k each: [..., step, term, k / 2, 16]. Of
    a number that is not finite, of which there are none if all `is_finite`, the first term is all."""
    rest = values.reshape(*values.shape[:-2], -1, amx.DEPTH, LANES).copy()
    words = np.empty((*rest.shape[:-2], amx.TERM_COUNT, amx.DEPTH // 2, LANES), "uint32")
    for place in range(amx.TERM_COUNT):
        term = rest.view("uint32") & _FIRST_TERM
        if not is_finite:
            term[np.isnan(rest)] = _NOT_A_NUMBER
        pairs = term.reshape(*rest.shape[:-2], -1, 2, LANES)
        np.bitwise_or(pairs[..., 0, :] >> 16, pairs[..., 1, :], out=words[..., place, :, :])
        with np.errstate(invalid="ignore"):
            rest -= term.view("float32")
        if not is_finite:
            rest[~np.isfinite(rest)] = 0
    return words


@dataclass(frozen=True)
class InTiles:
    """Products that read packed tiles.

    Attributes:
        works: Them.
        packed: What takes the place of which panels.
        packing: Of all of them.
    """

    works: Sequence[Contraction]
    packed: Mapping[Var, Var]
    packing: TilePacking

    @staticmethod
    def of(works: Sequence[Contraction], panels: Sequence[Var]) -> InTiles:
        """Return products of the same rows by these panels, of one group."""
        steps = tile_steps(works[0].extents)
        packed, reading = dict[Var, Var](), []
        for work, before in zip(works, panels, strict=True):
            weights = TileWeights.declare(f"{before.name}_tiles", work.extents.vectors, steps)
            weights = replace(weights, memory=packed.setdefault(before, weights.memory))
            reading.append(replace(work, tiles=weights))
        return InTiles(reading, packed, TilePacking(steps))

    def scheduled(self, func: tirx.PrimFunc, body: tirx.Stmt, template: str, tile: str) -> Scheduled:
        """Return `func` with the loops `body`, which read the tiles."""
        places = tuple(place for place, param in enumerate(func.params) if param in self.packed)
        params = [self.packed.get(param, param) for param in func.params]
        made = tirx.PrimFunc(params, body, func.ret_type, func.attrs)
        return Scheduled(made, template, tile, repack=Repack(places, self.packing))
