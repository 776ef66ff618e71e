"""Pages of the docs that are written from the code: `python -m tests.tables` writes them anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.tables import rewrites, spaces

DOCS = Path(__file__).parents[2] / "docs"
PAGES: dict[str, Callable[[], str]] = {"rewrites.md": rewrites.page, "spaces.md": spaces.page}
"""What writes each file of `DOCS`."""
