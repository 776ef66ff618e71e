"""The image that is read: a file, or a page drawn here when none is given."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

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


class UnreadableImageError(Exception):
    """The file is no image that can be read; the text says why, in one line."""


def read_image(path: Path) -> np.ndarray:
    """Return the image at `path`: uint8 of shape (height, width, 3).

    Raises:
        UnreadableImageError: There is no such file, or Pillow cannot read it.
    """
    try:
        with Image.open(path) as image:
            return np.asarray(image.convert("RGB"))
    # What Pillow raises for files that are cut short or damaged besides its own errors, which are OSErrors.
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        why = getattr(error, "strerror", None) or "it is damaged, or not an image that Pillow reads"
        raise UnreadableImageError(f"cannot read {path}: {why}") from error


def sample() -> np.ndarray:
    """Return a page of English text, its last line upside down: uint8 of shape (height, width, 3)."""
    upright = text_image.page(LINES, _ROW * len(LINES) + _MARGIN, _WIDTH, size=_SIZE, margin=_MARGIN)
    turned = text_image.page([UPSIDE_DOWN], _ROW, _WIDTH, size=_SIZE, margin=_MARGIN)[::-1, ::-1]
    return np.concatenate([upright, turned])
