"""What is made of the weights of a model once for all forms of it that are lowered one after the other.

The second form of BERT-base for all sizes packed 340 MB anew, half of what its lowering took.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import numpy.typing as npt

T = TypeVar("T")
_Made = dict[Hashable, tuple[npt.NDArray[Any], Any]]
_made: ContextVar[_Made | None] = ContextVar("made once", default=None)
"""With what each was made of, whose memory is no other's while it is kept here."""


@contextmanager
def making_once() -> Iterator[None]:
    """Keep what `once` makes inside for whoever asks for it again inside."""
    token = _made.set({})
    try:
        yield
    finally:
        _made.reset(token)


def once(make: Callable[..., T], weight: npt.NDArray[Any], *options: Hashable) -> T:
    """Return `make(weight, *options)`, of which nobody changes anything; the same as before where `weight` is the same
    memory, and not only equal."""
    made = _made.get()
    if made is None:
        return make(weight, *options)
    key = make, weight.ctypes.data, weight.shape, weight.strides, weight.dtype, options
    if key not in made:
        made[key] = weight, make(weight, *options)
    result: T = made[key][1]
    return result
