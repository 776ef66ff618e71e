"""Where the bench keeps what it makes once and uses often: zoo models and float64 references."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

VARIABLE = "FUSION_CACHE"


def folder(override: str | os.PathLike[str] | None = None) -> Path:
    """Return the cache folder: `override`, else $FUSION_CACHE, else the user's own cache folder."""
    chosen = override or os.environ.get(VARIABLE) or platformdirs.user_cache_dir("fusion", appauthor=False)
    return Path(chosen).expanduser()
