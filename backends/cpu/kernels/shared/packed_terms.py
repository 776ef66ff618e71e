"""Weights whose terms are packed before the run, as tiles of AMX read them: tasks need not split them.

    [strip of k][vector][step][term][k / 2][channel]    pairs of bfloat16 as words, half as much again as float32
    a vector of words behind them                       the first is not 0 where a weight is not finite
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
from backends.cpu.kernels.shared.contraction import Contraction
from backends.cpu.kernels.shared.term_products import STRIP_STEPS, TermSteps, TermWeights
from backends.tensorir.result import Repack, Scheduled

Words = npt.NDArray[np.uint32]

_NOT_A_NUMBER = np.uint32(0x7FC00000)


@dataclass(frozen=True)
class TermPacking:
    """Packs the panels of a product.

    Attributes:
        steps: Of k.
    """

    steps: TermSteps

    def __call__(self, panels: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return float32[..., vectors, taps..., depth, 16] as words, float32 by name, with the flag behind them."""
        taps, depth = self.steps.count // self.steps.of_tap, self.steps.depth
        values = panels.reshape(-1, taps, depth, amx.COLUMNS)
        steps = -(-self.steps.count // STRIP_STEPS) * STRIP_STEPS
        whole = np.zeros((len(values), taps, self.steps.of_tap * amx.DEPTH, amx.COLUMNS), "float32")
        whole[:, :, :depth] = values
        whole = whole.reshape(len(values), self.steps.count, amx.DEPTH // 2, 2, amx.COLUMNS)
        words = np.zeros((len(values), steps, amx.TERMS, amx.DEPTH // 2, amx.COLUMNS), "uint32")
        for place, term in enumerate(_terms(whole)):
            words[:, : self.steps.count, place] = term[:, :, :, 0] >> 16 | term[:, :, :, 1]
        strips = words.reshape(len(values), -1, STRIP_STEPS, *words.shape[2:]).swapaxes(0, 1)
        flag = np.full(amx.COLUMNS, not np.isfinite(panels).all(), "uint32")
        return np.concatenate([strips.ravel(), flag]).view("float32")


def _terms(values: npt.NDArray[Any]) -> Sequence[Words]:
    """Return the terms of numbers, as the high halves of words; of those that are not finite the first is all."""
    found: list[Words] = []
    for _ in range(amx.TERMS):
        bits = np.where(np.isnan(values), _NOT_A_NUMBER, values.view("uint32") & np.uint32(0xFFFF0000))
        found.append(bits)
        with np.errstate(invalid="ignore"):
            behind = values - bits.view("float32")
        values = np.where(np.isfinite(values), behind, np.float32(0))
    return found


@dataclass(frozen=True)
class InTerms:
    """Products that read packed terms.

    Attributes:
        works: Them.
        terms: What takes the place of which panels.
        packing: Of all of them.
    """

    works: Sequence[Contraction]
    terms: Mapping[Var, Var]
    packing: TermPacking

    @staticmethod
    def of(works: Sequence[Contraction], panels: Sequence[Var]) -> InTerms:
        """Return products of the same rows by these panels, of one group."""
        steps = TermSteps(works[0].extents.taps, works[0].extents.depth)
        terms, reading = dict[Var, Var](), []
        for work, packed in zip(works, panels, strict=True):
            weights = TermWeights.declare(f"{packed.name}_terms", work.extents.vectors, steps)
            weights = replace(weights, memory=terms.setdefault(packed, weights.memory))
            reading.append(replace(work, terms=weights))
        return InTerms(reading, terms, TermPacking(steps))

    def scheduled(self, func: tirx.PrimFunc, body: tirx.Stmt, template: str, tile: str) -> Scheduled:
        """Return `func` with the loops `body`, which read the terms."""
        places = tuple(place for place, param in enumerate(func.params) if param in self.terms)
        params = [self.terms.get(param, param) for param in func.params]
        made = tirx.PrimFunc(params, body, func.ret_type, func.attrs)
        return Scheduled(made, template, tile, repack=Repack(places, self.packing))
