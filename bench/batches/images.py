"""Batches of a few different images, and what must come out: of each image what it has alone, wherever it lies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from bench.peers.engine import Arrays
from bench.reference.kept import kept_or_evaluated
from bench.zoo.open_batch import batch_axis

_DISTINCT = 7
"""Images that are drawn. They do not divide the batches of 8 and 32, so that none is as many times in each part of a
batch; float64 takes seconds for one of most models."""


@dataclass(frozen=True)
class BatchImages:
    """Different inputs of batch 1 for one model, from which those of any batch are made.

    Attributes:
        path: ONNX file.
        alone: One set of inputs for each image.
    """

    path: Path
    alone: Sequence[Arrays]

    @classmethod
    def draw(cls, path: Path, inputs: Callable[[int], Arrays]) -> BatchImages:
        """Return images for the model at `path`, given inputs of batch 1 by seed."""
        return cls(path, [inputs(seed) for seed in range(_DISTINCT)])

    def batch(self, size: int, first: int = 0) -> Arrays:
        """Return a batch that begins with the image of this number."""
        return _repeated(self.alone, size, first)

    def outputs(self, size: int) -> Arrays:
        """Return what such a batch is in float64, each image evaluated by itself.

        Raises:
            NoReferenceError: The model cannot be evaluated.
        """
        return _repeated(self._outputs, size, 0)

    @cached_property
    def _outputs(self) -> list[Arrays]:
        return [kept_or_evaluated(self.path, image) for image in self.alone]


def _repeated(alone: Sequence[Arrays], size: int, first: int) -> Arrays:
    """Return so many of `alone` as one, in turn; what has no batch, as a rate of sampling, is that of the first."""
    found = {}
    for name, one in alone[0].items():
        parts = [alone[(first + place) % len(alone)][name] for place in range(size)]
        axis = batch_axis(one.shape)
        found[name] = one if axis is None else np.concatenate(parts, axis)
    return found
