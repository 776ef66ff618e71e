"""The cache on disk: compiled forms of models, in a folder of the user's alone, so that each is compiled once."""

from __future__ import annotations

from fusion.cache.place import DiskCache, find_place
from fusion.cache.store import Entry, Store

__all__ = ["DiskCache", "Entry", "Store", "find_place"]
