"""Names, shapes and dtypes of what a torch program takes and returns, without the leaves that are no tensors."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fusion.errors import InvalidModelError
from fusion.frontends.imported import TensorSpec
from fusion.frontends.torch.dynamic_shapes import given_names


@dataclass(frozen=True)
class ConstantInput:
    """An input that is no tensor: its value is part of the program."""

    value: Any


@dataclass(frozen=True)
class Signature:
    """What a program takes and returns.

    Attributes:
        inputs, outputs: The tensors; an open dimension is None.
        dtypes: torch's, of the inputs.
        symbols: The size of each axis of each input, as text: equal texts are equal sizes.
        ranges: Least and largest size of a symbol.
        constants: For each leaf that the program is called with, None for a tensor.
        kept: Which of the leaves that the program returns are `outputs`.
        notes: What is left out.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    dtypes: tuple[Any, ...]
    symbols: tuple[tuple[str, ...], ...]
    ranges: Mapping[str, tuple[int, int]]
    constants: tuple[ConstantInput | None, ...]
    kept: tuple[int, ...]
    notes: tuple[str, ...]


def read_signature(program: Any, notes: Sequence[str] = (), dynamic_shapes: Any = None) -> Signature:
    """Return the signature of an ExportedProgram, with `notes` on what is left out of it already; dimensions have the
    names that `dynamic_shapes` gives them.

    Raises:
        InvalidModelError: It returns no tensor.
    """
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    given = [spec.arg for spec in program.graph_signature.input_specs if spec.kind.name == "USER_INPUT"]
    constants = [None if hasattr(values.get(arg.name), "dtype") else ConstantInput(_value(arg)) for arg in given]
    tensors = [(arg.name, values[arg.name]) for arg, constant in zip(given, constants, strict=True) if not constant]
    returned = [spec.arg for spec in program.graph_signature.output_specs if spec.kind.name == "USER_OUTPUT"]
    names, found = _output_names(program, returned, values)
    if not names:
        raise InvalidModelError("the program returns no tensor", why="; ".join((*notes, *found)))
    dims = _dim_names(dict(tensors), given_names([name for name, _ in tensors], dynamic_shapes))
    return Signature(
        inputs=tuple(_spec(name, value, dims) for name, value in tensors),
        outputs=tuple(_spec(name, values[returned[index].name], dims) for index, name in names.items()),
        dtypes=tuple(value.dtype for _, value in tensors),
        symbols=tuple(tuple(str(size) for size in value.shape) for _, value in tensors),
        ranges={str(symbol): _range(limits) for symbol, limits in program.range_constraints.items()},
        constants=tuple(constants),
        kept=tuple(names),
        notes=(*notes, *found),
    )


def _value(argument: Any) -> Any:
    return getattr(argument, "value", None)


def _spec(name: str, value: Any, dims: Mapping[str, str]) -> TensorSpec:
    """Return what a tensor is; an open size that follows from others has no name."""
    dtype = str(value.dtype).removeprefix("torch.")
    axes = tuple("" if isinstance(size, int) else dims.get(str(size), "") for size in value.shape)
    sizes = tuple(size if isinstance(size, int) else None for size in value.shape)
    return TensorSpec(name, sizes, dtype, axes if any(axes) else ())


def _dim_names(inputs: Mapping[str, Any], given: Mapping[tuple[str, int], str]) -> dict[str, str]:
    """Return the name of each symbol of the program: the one that is given, or that of the dimension where it comes
    first."""
    places = [(str(size), (name, axis)) for name, value in inputs.items() for axis, size in enumerate(value.shape)]
    places = [(symbol, place) for symbol, place in places if symbol.isidentifier()]
    found = {symbol: given[place] for symbol, place in reversed(places) if place in given}
    for symbol, (name, axis) in places:
        if symbol not in found:
            unnamed = f"{name}_{axis}"
            found[symbol] = symbol if unnamed in found.values() else unnamed
    return found


ANY_SIZE = 1 << 62
"""The largest size of a dimension that has no largest one; torch's own number for that is larger."""


def _range(limits: Any) -> tuple[int, int]:
    """Return the least and largest size. torch writes 2 for "any", as it traces sizes 0 and 1 apart; here is no such
    difference, as the program is traced again where these may make another one."""
    low, high = _bound(limits.lower, 0), min(_bound(limits.upper, ANY_SIZE), ANY_SIZE)
    return (0 if low == 2 else low), high


def _bound(limit: Any, otherwise: int) -> int:
    """Return a limit as an integer; torch has infinities of its own, and symbols that are no sizes have them below."""
    try:
        return int(limit)
    except (AttributeError, OverflowError, TypeError, ValueError):
        return otherwise


def _output_names(program: Any, returned: list[Any], values: Mapping[str, Any]) -> tuple[dict[int, str], list[str]]:
    """Return the name of each leaf that is kept, by its index, and notes on the others."""
    names: dict[int, str] = {}
    notes: list[str] = []
    for index, (path, holder) in enumerate(leaves(program.call_spec.out_spec)):
        if index >= len(returned):
            break
        name = "_".join(path) or "output"
        if holder:
            if (note := left_out(name, holder)) not in notes:
                notes.append(note)
        elif not hasattr(values.get(returned[index].name), "dtype"):
            if _value(returned[index]) is not None:
                notes.append(f"the output {name!r}, always {_value(returned[index])!r}, is left out: it is no tensor")
        else:
            names[index] = _unique(name, names.values())
    return names, notes


def left_out(name: str, holder: str) -> str:
    """Return the note on an output of a class that is no container of named tensors."""
    return f"the output {name!r}, a {holder}, is left out: a compiled module returns tensors by name"


def _unique(name: str, taken: Any) -> str:
    numbered = (f"{name}_{count}" for count in itertools.count(2))
    return next(new for new in itertools.chain([name], numbered) if new not in taken)


def leaves(spec: Any, path: tuple[str, ...] = (), holder: str = "") -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the path of each leaf below `spec`, and the class that holds it where that has no names for its parts."""
    if spec.type is None:
        yield path, holder
        return
    children = list(spec.children())
    # Of a named tuple torch has the class in the context.
    kind = spec.type if isinstance(spec.type, type) else spec.context
    names = _part_names(kind, spec.context, len(children))
    if names is None:
        for child in children:
            for _ in leaves(child, path, kind.__name__):
                yield path or ("output",), kind.__name__
        return
    for name, child in zip(names, children, strict=True):
        # A position alone is no name.
        prefix = path or (("output",) if name.isdigit() else ())
        yield from leaves(child, (*prefix, name), holder)


def _part_names(kind: Any, context: Any, count: int) -> list[str] | None:
    """Return the names of the parts of a container: keys, fields, positions; None for one that only it can read."""
    if hasattr(kind, "_fields"):
        return list(kind._fields)
    if issubclass(kind, (tuple, list)):
        return [str(index) for index in range(count)]
    if issubclass(kind, Mapping) or dataclasses.is_dataclass(kind):
        # Of a defaultdict and of a dataclass the names are one part of the context.
        parts = context if isinstance(context, (list, tuple)) else []
        for names in (parts, *(part for part in parts if isinstance(part, (list, tuple)))):
            if len(names) == count and all(isinstance(name, (str, int)) for name in names):
                return [str(name) for name in names]
    return None
