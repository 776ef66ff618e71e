"""Python's garbage collector, which looks for garbage less often where nearly all objects stay.

TVM and the compiler are 1,500 modules with 110,000 objects: the collector ran 500 times while they were imported, and
took 0.2 of 1.1 s. It ran 250 times while MiniLM was compiled for all sizes, twice through all of them: 0.2 of 4.7 s.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """Turn the collector off inside, for all threads; where somebody else has turned it off, it stays off."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


_RARELY = 20_000
"""New objects after which the collector runs while a model is compiled: Python's own number is 700."""


@contextmanager
def seldom() -> Iterator[None]:
    """Have the collector run after `_RARELY` new objects inside, for all threads; where somebody else has set a number
    as large, or turned it off by 0, that stays."""
    first, *others = gc.get_threshold()
    if not 0 < first < _RARELY:
        yield
        return
    gc.set_threshold(_RARELY, *others)
    try:
        yield
    finally:
        gc.set_threshold(first, *others)
