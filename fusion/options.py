"""The values that options of the API and the command line may have. Without TVM: a wrong one is told at once."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any

from fusion.errors import OptionError, ShapeError

FAST, BALANCED, MAX = "fast", "balanced", "max"
EFFORTS = (FAST, BALANCED, MAX)
GENERATOR, FALLBACK = "cpu", "onnxruntime"
BACKENDS = (GENERATOR, FALLBACK)
BF16_OR_FP32 = "bf16-or-fp32"
PRECISIONS = ("fp32", "bf16", BF16_OR_FP32, "tf32")
ROUNDED = {"bf16": "bfloat16", "tf32": "tfloat32"}
"""What operands are rounded to, by precision."""
# More than any machine has CPUs for one process; a pool of ten thousand threads fails when it starts.
_MOST_THREADS = 1024
_LONGEST = 3600
_DAY = 24 * 3600
_BUDGET = re.compile(r"(\d{1,9}(?:\.\d*)?)([smh]?)", re.ASCII)
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}


def check_threads(threads: int | None, name: str = "threads") -> None:
    """Raise unless `threads`, of the option `name`, is a number of worker threads, or None.

    Raises:
        OptionError: It is not.
    """
    whole = isinstance(threads, Integral) and not isinstance(threads, bool)
    if threads is not None and not (whole and 1 <= threads <= _MOST_THREADS):
        raise OptionError(
            f"{name}={threads!r} is not a number of threads",
            hint=f"use 1 to {_MOST_THREADS}, or leave it out for all CPUs this process may use",
        )


def read_shapes(shapes: Any) -> dict[str, tuple[int, ...]]:
    """Return `shapes`, what a user gave as the shapes of inputs by name, as plain numbers.

    Raises:
        OptionError: It is no mapping.
        ShapeError: A value is no sequence of whole numbers, 0 or more.
    """
    if not isinstance(shapes, Mapping):
        raise OptionError(
            f"shapes= cannot be of type {type(shapes).__name__}", hint="give a dict such as {'x': (1, 3, 224, 224)}"
        )
    return {str(name): _read_shape(name, shape) for name, shape in shapes.items()}


def read_named_shapes(shapes: Any) -> dict[str, tuple[int | str, ...]]:
    """Return `shapes` as `read_shapes` does, where a dimension may also have a name: it stays open, and has one size in
    a call with others of that name.

    Raises:
        OptionError, ShapeError: As `read_shapes`.
    """
    named = {}
    for name, shape in shapes.items() if isinstance(shapes, Mapping) else ():
        if isinstance(shape, list | tuple) and any(isinstance(extent, str) and extent for extent in shape):
            known = _read_shape(name, [0 if isinstance(extent, str) and extent else extent for extent in shape])
            dims = zip(shape, known, strict=True)
            named[str(name)] = tuple(given if isinstance(given, str) else extent for given, extent in dims)
    rest = {name: shape for name, shape in shapes.items() if str(name) not in named} if named else shapes
    return {**read_shapes(rest), **named}


def read_bounds(bounds: Any) -> dict[str, range]:
    """Return `bounds`, what a user gave as the sizes of dimensions by their names.

    Raises:
        OptionError: One is no range of sizes.
    """
    if not isinstance(bounds, Mapping):
        raise OptionError(f"bounds={str(bounds)[:200]} names no dimensions", hint=_BOUNDS)
    for name, sizes in bounds.items():
        is_of_sizes = isinstance(sizes, range) and sizes and sizes.step > 0 and 0 <= sizes[0] <= sizes[-1] < _LARGEST
        if not isinstance(name, str) or not is_of_sizes:
            raise OptionError(f"bounds={{{name!r}: {str(sizes)[:200]}}} is no range of sizes", hint=_BOUNDS)
    return {name: range(sizes.start, sizes[-1] + 1, sizes.step) for name, sizes in bounds.items()}


_LARGEST = 1 << 62
_BOUNDS = 'give each dimension a range of its sizes by its name: {"length": range(1, 513), "width": range(8, 513, 8)}'


def _read_shape(name: Any, shape: Any) -> tuple[int, ...]:
    try:
        extents = None if isinstance(shape, str | bytes) else tuple(map(_whole, shape))
    except Exception:  # whatever an object raises that is no sequence of numbers
        extents = None
    if extents is None or min(extents, default=0) < 0:
        raise ShapeError(
            f"shapes={{{name!r}: {str(shape)[:200]}}} is not a shape",
            hint="give one whole number, 0 or more, for each dimension, or the name of one that stays open",
        )
    return extents


def _whole(extent: Any) -> int:
    if isinstance(extent, bool):
        raise TypeError("a truth value is no size")
    number = operator.index(extent)
    if number >= _LARGEST:
        raise ValueError("no tensor has so many elements")
    return number


def check_effort(effort: str) -> None:
    """Raise unless `effort` is one of `EFFORTS`.

    Raises:
        OptionError: It is not.
    """
    if not isinstance(effort, str) or effort not in EFFORTS:
        raise OptionError(f"unknown effort {effort!r}", hint=f"use one of {', '.join(EFFORTS)}")


def check_flag(name: str, value: object) -> None:
    """Raise unless `value`, of the option `name`, is true or false.

    Raises:
        OptionError: It is neither.
    """
    if not isinstance(value, bool | Integral) and type(value).__name__ != "bool":
        raise OptionError(f"{name}={str(value)[:100]!r} is neither True nor False")


def check_count(name: str, value: object) -> None:
    """Raise unless `value`, of the option `name`, is a number of things.

    Raises:
        OptionError: It is none.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 0:
        raise OptionError(f"{name}={str(value)[:100]!r} is no whole number, 0 or more")


def check_seconds(seconds: float) -> None:
    """Raise unless `seconds` is a time to measure for: 0 to an hour.

    Raises:
        OptionError: It is not.
    """
    if not isinstance(seconds, Real) or not 0 <= seconds <= _LONGEST:
        raise OptionError(f"seconds={str(seconds)[:100]} is no time to measure for", hint=f"use 0 to {_LONGEST}")


def read_budget(budget: str | float, name: str = "budget") -> float:
    """Return the seconds of `budget`, an option of that `name`: a number of them, or a text such as "90s", "10m" or
    "1h".

    Raises:
        OptionError: It is none of these, or more than a day.
    """
    text = str(budget) if isinstance(budget, str | Real) and not isinstance(budget, bool) else ""
    match = _BUDGET.fullmatch(text.strip())
    seconds = float(match[1]) * _UNITS[match[2]] if match else -1.0
    if not 0 <= seconds <= _DAY:
        raise OptionError(
            f"{name}={str(budget)[:100]!r} is no time", hint='give seconds, or a text such as "90s", "10m" or "1h"'
        )
    return seconds


def read_tracker(rpc: str | None, key: str | None) -> tuple[str, int] | None:
    """Return the host and the port of a tracker of TVM RPC, whose servers of a key are meant; None where none is named.

    Raises:
        OptionError: One of the two is missing, or no address.
    """
    if rpc is None and key is None:
        return None
    hint = 'name a tracker and the key of its servers: rpc="host:9190", key="board"'
    if not isinstance(rpc, str) or not isinstance(key, str) or not key or any(map(str.isspace, key)):
        raise OptionError(f"rpc={str(rpc)[:100]!r} and key={str(key)[:100]!r} name no servers", hint=hint)
    host, separator, port = rpc.strip().rpartition(":")
    if not host or not separator or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise OptionError(f"rpc={rpc[:100]!r} is no address", hint=hint)
    return host.strip("[]"), int(port)


def check_precision(precision: str) -> None:
    """Raise unless `precision` is one of `PRECISIONS`.

    Raises:
        OptionError: It is not.
    """
    if not isinstance(precision, str) or precision not in PRECISIONS:
        raise OptionError(
            f"unknown precision {precision!r}",
            hint=f"use one of {', '.join(PRECISIONS)}; a model that is itself in float16 or bfloat16 needs none",
        )


def check_backends(backends: Sequence[str] | None, others: Sequence[str] = ()) -> None:
    """Raise unless `backends` is None or a list of some of `BACKENDS` and `others`.

    Raises:
        OptionError: It is not.
    """
    if backends is None:
        return
    known = tuple(dict.fromkeys((*BACKENDS, *others)))
    hint = f"give a list of {', '.join(known)}; {GENERATOR!r} is our own kernels, those of CUDA targets too"
    if not isinstance(backends, list | tuple | set | frozenset):
        raise OptionError(f"backends={backends!r} is no list", hint=hint)
    if not backends:
        raise OptionError(f"backends={backends!r} names no backend", hint=hint)
    if any(isinstance(name, str) and not name.strip() for name in backends):
        raise OptionError(f"backends={backends!r} has an empty name in it", hint=hint)
    unknown = [repr(name) for name in backends if not isinstance(name, str) or name not in known]
    if unknown:
        raise OptionError(f"backends={backends!r}: no backend has the name {' or '.join(unknown)}", hint=hint)
