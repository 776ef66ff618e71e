"""Where the bench keeps what it makes once and uses often: zoo models and float64 references."""

from __future__ import annotations

import os
from pathlib import Path

from fusion.cache.place import user_folder


def folder(override: str | os.PathLike[str] | None = None) -> Path:
    """Return the cache folder: `override`, else the one for all that fusion keeps."""
    return Path(override).expanduser() if override else user_folder()
