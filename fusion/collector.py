"""Python's garbage collector, kept from looking for garbage where modules are imported.

Those of TVM and of the compiler are 1,500, make 110,000 objects that stay, and had it look 500 times: 0.2 s of the 1.1
that importing them took.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """Collect no garbage inside, in no thread; nothing where somebody else has turned collecting off."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
