"""A model that was lowered for all sizes of its open dimensions at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fusion.lowered import Lowered
from fusion.symbolic.fit import Fit
from fusion.symbolic.open_dims import OpenDims
from fusion.symbolic.open_weights import OpenWeight


@dataclass(frozen=True)
class OpenModel:
    """A model with the loops of its kernels, for all sizes within bounds.

    Attributes:
        lowered: Its `main` takes the inputs, `weights` and those of `lowered`.
        weights: Constants that depend on the sizes.
        bounds: The sizes of each symbol that it is known to be right for.
        fit: Knows the sizes at which passes saw it, its probes; its memory is planned at the first.
        reason: Why it is not for all sizes of the dimensions that the model leaves open; empty where it is.
        is_limited: Whether this process could not import it at some sizes, which may be why it is not for more.
    """

    lowered: Lowered
    dims: OpenDims
    weights: tuple[OpenWeight, ...]
    bounds: Mapping[str, range]
    fit: Fit
    reason: str = ""
    is_limited: bool = False
