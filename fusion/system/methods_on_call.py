"""Has dataclasses write their methods when these are first called: most never are.

A frozen dataclass has six methods, each of which is a text that Python compiles while its module is imported: 3,100 of
them took 0.4 of the 1.4 CPU seconds that importing NumPy, TVM and the compiler took (Emerald Rapids, two vCPUs).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

_OURS = frozenset({"backends", "fusion", "partition", "placement", "tuning"})
"""The packages whose classes these are: what others do with the methods of theirs is not known."""
_WRITER = "_create_fn"
"""What makes a function of its text in Python 3.10 to 3.12; later ones make all methods of a class of one text."""


def install() -> None:
    """Have it so from now on, in the whole process."""
    import dataclasses  # 10 ms, which `import fusion` alone need not take

    write = getattr(dataclasses, _WRITER, None)
    if write is None or sys.version_info >= (3, 13) or hasattr(write, "__wrapped__"):
        return

    @wraps(write)
    def write_later(name: str, args: Any, body: Any, **given: Any) -> Any:
        defined_in = str((given.get("globals") or {}).get("__name__"))
        written = cache(lambda: write(name, args, body, **given))
        return _when_called(name, written) if defined_in.partition(".")[0] in _OURS else written()

    setattr(dataclasses, _WRITER, write_later)


def _when_called(name: str, written: Callable[[], Any]) -> Any:
    """Return a method that stands for what `written` returns until it is first called."""

    def method(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        function = written()
        function.__qualname__ = method.__qualname__
        for owner in type(self).__mro__:
            if vars(owner).get(name) is method:
                setattr(owner, name, function)
        return function(self, *args, **kwargs)

    method.__name__ = name
    return method
