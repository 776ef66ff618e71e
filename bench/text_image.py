"""Images of English text, drawn here so that no image file and no font file is needed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

_WORDS = ("quick", "brown", "fox", "jumps", "over", "lazy", "dogs", "while", "compilers", "fuse", "small", "kernels")
_WHITE, _BLACK = 255, 20


def page(lines: Sequence[str], height: int, width: int, *, size: int, margin: int) -> np.ndarray:
    """Return a white page with one row of dark text per line.

    Args:
        lines: Text, from top to bottom; evenly spaced.
        height, width: Of the page, in pixels.
        size: Of the letters, in pixels.
        margin: Left and top distance in pixels.

    Returns:
        uint8 of shape (height, width, 3).
    """
    image = Image.new("RGB", (width, height), (_WHITE,) * 3)
    canvas = ImageDraw.Draw(image)
    font = ImageFont.load_default(size)
    pitch = (height - margin) // max(len(lines), 1)
    for row, line in enumerate(lines):
        canvas.text((margin, margin + row * pitch), line, fill=(_BLACK,) * 3, font=font)
    return np.asarray(image)


def random_page(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Return pages of random words as a text network takes them: float32 of `shape` (N, 3, H, W), in [-1, 1]."""
    batch, _, height, width = shape
    size = min(32, int(height * 0.6))
    rows = max(1, height // (2 * size))
    pages = [
        page([" ".join(rng.choice(_WORDS, 8)) for _ in range(rows)], height, width, size=size, margin=size // 4)
        for _ in range(batch)
    ]
    stacked = np.stack(pages).transpose(0, 3, 1, 2).astype(np.float32)
    return np.asarray((stacked / 255 - 0.5) / 0.5)
