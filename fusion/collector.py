"""Python's garbage collector, kept from looking for garbage where nearly all objects stay.

The modules of TVM and of the compiler are 1,500, make 110,000 objects, and had it look 500 times: 0.2 s of the 1.1 that
importing them took. Compiling MiniLM for all sizes had it look 250 times, at all of these objects twice: 0.2 s of 4.7.
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


_RARELY = 20_000
"""Objects more than before at which garbage is looked for while a model is compiled: Python's own number is 700."""


@contextmanager
def seldom() -> Iterator[None]:
    """Look for garbage more seldom inside, in all threads; nothing where somebody else has it looked for as seldom, or
    never."""
    first, *others = gc.get_threshold()
    if not 0 < first < _RARELY:
        yield
        return
    gc.set_threshold(_RARELY, *others)
    try:
        yield
    finally:
        gc.set_threshold(first, *others)
