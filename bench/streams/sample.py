"""What is kept of the outputs of each call of a stream: all of them together would fill the memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bench.peers.engine import Arrays

_MOST = 4096


@dataclass(frozen=True)
class Sample:
    """The shape of an output, and its elements at random positions, which are the same for the same size."""

    shape: tuple[int, ...]
    elements: np.ndarray


def take_samples(outputs: Arrays) -> dict[str, Sample]:
    """Return a sample of each output, the whole of those that are small."""
    return {name: _sample(value) for name, value in outputs.items()}


def _sample(value: np.ndarray) -> Sample:
    flat = value.reshape(-1)
    if flat.size > _MOST:
        flat = flat[np.random.default_rng(flat.size).integers(0, flat.size, _MOST)]
    # A copy: an engine may hand out memory that its next run overwrites.
    return Sample(value.shape, flat.copy())
