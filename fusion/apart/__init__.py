"""Asks libraries in another process before this one does: one that crashes, or hangs, ends nothing here."""

from fusion.apart.imports import import_apart
from fusion.apart.openings import open_apart
from fusion.apart.process import asking_apart
from fusion.apart.saved_parts import open_saved_apart

__all__ = ["asking_apart", "import_apart", "open_apart", "open_saved_apart"]
