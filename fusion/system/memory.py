"""How much memory this process may use. Without TVM, as `fusion.system.cpus`."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Sequence

from fusion.errors import LimitError
from fusion.system.control_groups import own_groups, read_text

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

_LIMITS = ("memory.max", "memory.limit_in_bytes")
"""Files of a control group, in each version of them; what says "max", or the largest of all integers, is no limit."""
_UNKNOWN = 1 << 46
"""Bytes, where the system tells no limit: more than any machine has."""
_ALWAYS_FITS = 64 << 10
"""Bytes of which the system is not asked: that takes 4 us, and runs allocate small results."""


def check_memory(shape: Sequence[int], itemsize: int, where: str) -> None:
    """Raise unless a tensor of `shape`, each element of `itemsize` bytes, may fit the memory of this process.

    Raises:
        LimitError: It does not; `where` says what the tensor is.
    """
    size = math.prod(shape) * itemsize
    if size > _ALWAYS_FITS and size > usable_memory():
        raise LimitError(
            f"a tensor of {size:,} bytes does not fit the memory of this process",
            where=where,
            why=f"its shape is {tuple(shape)}, and this process may use {usable_memory():,} bytes",
            hint="check the sizes and constants of the model, and shapes=",
        )


def check_run(inputs: int, between: int, results: int) -> None:
    """Raise unless a run may fit the memory of this process: where only each part of it does, the system ends the
    process when that writes to more memory than there is.

    Args:
        inputs: Bytes of what the run is given.
        between: Bytes of what lies between its kernels.
        results: Bytes of what it makes for its caller.

    Raises:
        LimitError: It does not.
    """
    needed = inputs + between + results
    if needed > _ALWAYS_FITS and needed > usable_memory():
        raise LimitError(
            f"a run that needs {needed:,} bytes does not fit the memory of this process",
            where="memory of a compiled module",
            why=f"inputs take {inputs:,} bytes, what lies between kernels {between:,}, and results {results:,}; this "
            f"process may use {usable_memory():,}",
            hint="give fewer items at a time; check shapes= and the constants of the model",
        )


def usable_memory() -> int:
    """Return the bytes that this process may use: the least of what the machine has, the limits of the control groups
    that it is in, and that of its address space.

    What others use now is not taken off: it may be given back, and an answer that differs from run to run helps nobody.
    """
    return min(_memory_of_machine(), _address_space())


def _address_space() -> int:
    if resource is None:
        return _UNKNOWN
    limits = (resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA))
    return min((limit for limit in limits if limit != resource.RLIM_INFINITY), default=_UNKNOWN)


@functools.cache
def _memory_of_machine() -> int:
    try:
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        pages = -1
    said = [read_text(group / name) for group in own_groups("memory") for name in _LIMITS]
    limits = [pages, *(int(limit) for limit in said if limit.isdigit())]
    return min((limit for limit in limits if limit > 0), default=_UNKNOWN)
