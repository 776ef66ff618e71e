"""Weights that are packed before the run in the order of tiles of AMX, so that tasks need not prepare them.

    [strip of k][vector][step][term][k / 2][channel]    of float32 terms, pairs of bfloat16 as words: half as much again
    [strip of k][vector][step][k / 4][channel][k % 4]   of bytes
    a vector of words behind them                       the first is not 0 where a weight of float32 is not finite
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
from backends.cpu.kernels.shared.tile_products import LANES, TileSteps, TileWeights
from backends.tensorir.result import Repack, Scheduled

Array = npt.NDArray[Any]
Words = npt.NDArray[np.uint32]

_NOT_A_NUMBER = np.uint32(0x7FC00000)


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
        taps, together = steps.count // steps.of_tap, panels.shape[-1] // LANES
        many = -(-steps.depth // together)
        values = panels.reshape(-1, taps, many, panels.shape[-1])
        of_tap = steps.of_tap * form.numbers.depth // together
        whole = np.zeros((len(values), taps, of_tap, panels.shape[-1]), panels.dtype)
        whole[:, :, :many] = values
        made = whole if together > 1 else _in_words(whole)
        made = made.reshape(len(values), steps.count, form.weight_elements)
        filled = np.zeros((len(values), steps.strips * form.strip_steps, form.weight_elements), made.dtype)
        filled[:, : steps.count] = made
        strips = filled.reshape(len(values), steps.strips, -1).swapaxes(0, 1)
        flag = np.full(LANES, panels.dtype == np.float32 and not np.isfinite(panels).all(), made.dtype)
        return np.concatenate([strips.ravel(), flag]).view(form.packed_dtype)


def _in_words(values: Array) -> Words:
    """Return the terms of float32[..., depth, 16] in words of two elements of k each: [..., step, term, k / 2, 16]."""
    pairs = values.reshape(*values.shape[:-2], -1, amx.DEPTH // 2, 2, LANES)
    terms = [term[..., 0, :] >> 16 | term[..., 1, :] for term in _terms(pairs)]
    return np.stack(terms, axis=-3)


def _terms(values: Array) -> Sequence[Words]:
    """Return the terms of numbers, as the high halves of words; of those that are not finite the first is all."""
    found: list[Words] = []
    for _ in range(amx.TERM_COUNT):
        bits = np.where(np.isnan(values), _NOT_A_NUMBER, values.view("uint32") & np.uint32(0xFFFF0000))
        found.append(bits)
        with np.errstate(invalid="ignore"):
            behind = values - bits.view("float32")
        values = np.where(np.isfinite(values), behind, np.float32(0))
    return found


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
