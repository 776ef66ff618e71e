"""Asks libraries in another process before this one does: one that crashes, or hangs, ends nothing here."""

from fusion.passes.apart.ask import asking_apart, open_apart, try_libraries, try_library

__all__ = ["asking_apart", "open_apart", "try_libraries", "try_library"]
