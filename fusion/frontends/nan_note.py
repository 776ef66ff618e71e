"""What reports say of a weight that holds NaN: it is computed with, as anywhere else, but hardly ever meant."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np


def nan_note(name: str, array: np.ndarray) -> Iterator[str]:
    """Yield a sentence on the weight `name` if an element of `array`, floats, is NaN."""
    # The sum is NaN or infinite if any element is, at a tenth of the cost of testing each.
    with np.errstate(all="ignore"):
        suspicious = array.size and not np.isfinite(array.sum(dtype=np.float32))
    count = int(np.isnan(array).sum()) if suspicious else 0
    if count:
        yield f"weight {name!r} holds NaN, {count} of {array.size} elements"
