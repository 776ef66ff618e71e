"""A Relay module that was read, with its parameters: what it takes, what it returns, and its translation."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fusion.errors import FusionError, InvalidModelError, OptionError
from fusion.frontends.imported import ImportedModel, TensorSpec
from fusion.frontends.relay.parameters import Parameters, read_parameters
from fusion.frontends.relay.parse import parse
from fusion.frontends.relay.source import RelayText
from fusion.frontends.relay.syntax import Function, Position, RelayModel, RelayModule, TensorType, TupleType, Type
from fusion.frontends.relay.translate import translate
from fusion.tensors import numpy_dtype

_PLACE = re.compile(r"(.*\b)?line (\d+), column (\d+)")


def open_relay(source: RelayText, params: Parameters | None) -> RelayModel:
    """Return the module in `source`, with `params` in front of the parameters that came with it.

    Raises:
        RelayTextError: The text breaks Relay's rules.
        InvalidModelError: It has no `main`.
        ParameterFileError: The file of the parameters cannot be read.
        OptionError: A parameter is not of `main`, or of another shape or dtype. A file, and what came with the module,
            may hold more than `main` takes, as Relay lets them: its importers fold some away.
    """
    module = parse(source.text, source.origin)
    declared = dict(_tensors_of_main(module))
    given = read_parameters(params) if params is not None else {}
    if isinstance(params, Mapping) or not given.keys() & declared.keys():
        _refuse_unknown(given, declared)
    found = {**read_parameters(source.params), **given}
    kept = {name: _fitting(name, found[name], declared[name]) for name in declared if name in found}
    return RelayModel(module, kept)


def read_relay_signature(model: RelayModel) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Return the inputs of `main` and its outputs: none where the text leaves the type of its result out."""
    inputs = tuple(
        TensorSpec(name, kind.shape, kind.dtype)
        for name, kind in _tensors_of_main(model.module)
        if name not in model.params
    )
    results = list(_tensors("output", _main(model.module).result_type))
    known = all(isinstance(kind, TensorType) for _, kind in results)
    outputs = (
        TensorSpec(f"output_{index}", kind.shape, kind.dtype)
        for index, (_, kind) in enumerate(results)
        if isinstance(kind, TensorType)
    )
    return inputs, tuple(outputs) if known else ()


def import_relay(model: RelayModel, shapes: Mapping[str, Sequence[int]]) -> ImportedModel:
    """Return `model` as Relax; see `translate`. Errors show the line of the text that they name."""
    try:
        return translate(model.module, model.params, shapes)
    except FusionError as error:
        match = _PLACE.fullmatch(error.where)
        if match is not None:
            error.where = f"{match[1] or ''}{model.module.where(Position(int(match[2]), int(match[3])))}"
        raise


def _main(module: RelayModule) -> Function:
    if "main" not in module.functions:
        names = ", ".join(f"@{name}" for name in module.functions) or "none"
        raise InvalidModelError("the module has no function @main", where=module.origin, hint=f"it has {names}")
    return module.functions["main"]


def _tensors_of_main(module: RelayModule) -> Iterator[tuple[str, TensorType]]:
    """Yield what `main` takes; the tensors of a tuple `x` are called x.0, x.1.

    Raises:
        InvalidModelError: There is no `main`, or a parameter is no tensor.
    """
    for parameter in _main(module).parameters:
        for name, kind in _tensors(parameter.name, parameter.type):
            if not isinstance(kind, TensorType):
                raise InvalidModelError(
                    f"the text does not say which tensor %{name} of @main is",
                    where=module.where(parameter.position),
                    hint="run relay.transform.InferType() before printing the module",
                )
            yield name, kind


def _tensors(name: str, kind: Type | None) -> Iterator[tuple[str, Type | None]]:
    if not isinstance(kind, TupleType):
        yield name, kind
        return
    for index, field in enumerate(kind.fields):
        yield from _tensors(f"{name}.{index}", field)


def _refuse_unknown(given: Mapping[str, Any], declared: Mapping[str, TensorType]) -> None:
    for name in given:
        if name not in declared:
            raise OptionError(
                f"params= names {name!r}, which @main does not have",
                hint=f"its parameters are {', '.join(declared) or 'none'}",
            )


def _fitting(name: str, array: np.ndarray, kind: TensorType) -> np.ndarray:
    """Return `array` as a value of `kind`; what an .npz keeps of bfloat16 is its bytes."""
    dtype = numpy_dtype(kind.dtype)
    if array.dtype.kind == "V" and array.dtype.itemsize == dtype.itemsize:
        array = array.view(dtype)
    fits = len(array.shape) == len(kind.shape)
    fits = fits and all(want in (None, have) for have, want in zip(array.shape, kind.shape, strict=True))
    if array.dtype != dtype or not fits:
        extents = ", ".join("?" if extent is None else str(extent) for extent in kind.shape)
        raise OptionError(
            f"the parameter {name!r} is {array.dtype.name}{list(array.shape)}",
            why=f"@main declares {kind.dtype}[{extents}]",
            hint="give the parameters that belong to this module",
        )
    return array
