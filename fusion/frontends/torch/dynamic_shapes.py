"""Why torch does not take the open dimensions that it is given, in a line that names what is wrong."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_CONSTRAINTS = "Constraints violated"
"""How torch's message begins where a module needs one of the sizes; each line that follows tells of one."""
_LONGEST = 300


def misfit(module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], dynamic_shapes: Any) -> str:
    """Return the first entry of `dynamic_shapes` that is of no input or no dimension; "" where none is, or where the
    inputs have no names."""
    try:
        inputs = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        return ""
    return next(_misfits(inputs, dynamic_shapes), "")


def refusal(error: Exception) -> str:
    """Return which size a module needs, as torch has it; "" where that is not why it refuses."""
    first, *lines = str(error).strip().splitlines() or [""]
    told = [line.strip(" -") for line in lines if line.strip().startswith("- ")]
    return told[0][:_LONGEST] if first.startswith(_CONSTRAINTS) and told else ""


def given_names(inputs: Sequence[str], dynamic_shapes: Any) -> dict[tuple[str, int], str]:
    """Return the names that `dynamic_shapes` gives to dimensions, by input and axis; none of what is nested."""
    entries = dynamic_shapes
    if isinstance(dynamic_shapes, (list, tuple)):
        entries = dict(zip(inputs, dynamic_shapes, strict=False)) if len(dynamic_shapes) == len(inputs) else {}
    found = {}
    for name, entry in entries.items() if isinstance(entries, Mapping) else ():
        dims = enumerate(entry) if isinstance(entry, (list, tuple)) else dict(entry or {}).items()
        for axis, dim in dims:
            if isinstance(axis, int) and isinstance(given := getattr(dim, "__name__", None), str):
                found[name, axis] = given
    return found


def _misfits(inputs: Mapping[str, Any], given: Any) -> Iterator[str]:
    names = ", ".join(inputs)
    if isinstance(given, Mapping):
        yield from (f"it names {name!r}, and the inputs are {names}" for name in given if name not in inputs)
        yield from (f"it has no entry for the input {name!r}" for name in inputs if name not in given)
        entries = dict(given)
    elif isinstance(given, (list, tuple)):
        if len(given) != len(inputs):
            yield f"it has {len(given)} entries, and the inputs are {names}"
        entries = dict(zip(inputs, given, strict=False))
    else:
        yield f"it is of type {type(given).__name__}, and neither a dict nor a tuple"
        return
    for name, entry in entries.items():
        if (rank := getattr(inputs[name], "ndim", None)) is not None:
            yield from _dimensions(name, rank, entry)


def _dimensions(name: str, rank: int, entry: Any) -> Iterator[str]:
    """Yield what is wrong with the entry of a tensor."""
    if isinstance(entry, Mapping):
        for key in entry:
            if not isinstance(key, int) or not -rank <= key < rank:
                dimensions = f"the dimensions 0 to {rank - 1}" if rank else "no dimensions"
                yield f"the input {name!r} has {dimensions}, and no {key!r}"
    elif isinstance(entry, (list, tuple)) and len(entry) != rank:
        yield f"the input {name!r} has {rank} dimensions, and its entry {len(entry)}"
