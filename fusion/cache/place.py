"""Where the cache is and how large it may be, as two variables of the environment say."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from fusion.errors import OptionError

FOLDER_VARIABLE = "FUSION_CACHE"
SIZE_VARIABLE = "FUSION_CACHE_SIZE"
_OFF = ("0", "off")
_DEFAULT_BYTES = 4 << 30
"""ResNet-50 takes 118 MB, BERT-base 440: nearly all of it packed weights."""
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"(\d{1,15})([KMGT]?)(?:i?B)?", re.IGNORECASE)


@dataclass(frozen=True)
class DiskCache:
    """A cache.

    Attributes:
        folder: Where its entries are; it need not exist yet.
        most_bytes: What all of them may take.
    """

    folder: Path
    most_bytes: int


def find_place() -> DiskCache | None:
    """Return the user's cache, or None where there is none: a variable turns it off (`FUSION_CACHE` of 0, or a size of
    0), or the user has no home.

    Raises:
        OptionError: `FUSION_CACHE_SIZE` is no size.
    """
    most_bytes = _most_bytes()
    if os.environ.get(FOLDER_VARIABLE, "").lower() in _OFF or most_bytes == 0:
        return None
    try:
        return DiskCache(user_folder() / "compiled", most_bytes)
    except OptionError:
        return None


def user_folder() -> Path:
    """Return the folder for all that fusion keeps: `FUSION_CACHE` where it names one, else the system's for caches.

    Raises:
        OptionError: It would be in the home of a user who has none, as processes in containers may.
    """
    chosen = os.environ.get(FOLDER_VARIABLE, "")
    try:
        named = chosen if chosen.lower() not in ("", *_OFF) else platformdirs.user_cache_dir("fusion", appauthor=False)
    except RuntimeError:  # of newer versions of platformdirs; older ones return what begins with ~
        named = "~"
    named = os.path.expanduser(named)
    if named.startswith("~"):
        raise OptionError(
            "there is no home to keep anything in",
            where=FOLDER_VARIABLE,
            why=f"the system does not know the home of {named.partition(os.sep)[0]}",
            hint="name a folder: FUSION_CACHE=/var/cache/fusion",
        )
    return Path(os.path.abspath(named))


def _most_bytes() -> int:
    text = os.environ.get(SIZE_VARIABLE, "").strip()
    if not text:
        return _DEFAULT_BYTES
    match = _SIZE.fullmatch(text)
    if match is None:
        raise OptionError(
            f"{SIZE_VARIABLE}={text[:100]!r} is not a size", hint="give bytes, or a number of K, M, G or T: 4G"
        )
    return int(match[1]) * _UNITS[match[2].upper()]
