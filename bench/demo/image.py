"""The image that is read when none is given."""

from __future__ import annotations

import numpy as np

from bench import text_image

LINES = (
    "fusion compiles a trained model",
    "into one fast program for this machine:",
    "it rewrites the graph, cuts it into groups,",
    "and turns each group into one kernel.",
    "Three networks read this page.",
)
UPSIDE_DOWN = "This line is upside down (180 degrees)"
_WIDTH, _ROW, _SIZE, _MARGIN = 960, 110, 40, 30


def sample() -> np.ndarray:
    """Return a page of English text, its last line upside down: uint8 of shape (height, width, 3)."""
    upright = text_image.page(LINES, _ROW * len(LINES) + _MARGIN, _WIDTH, size=_SIZE, margin=_MARGIN)
    turned = text_image.page([UPSIDE_DOWN], _ROW, _WIDTH, size=_SIZE, margin=_MARGIN)[::-1, ::-1]
    return np.concatenate([upright, turned])
