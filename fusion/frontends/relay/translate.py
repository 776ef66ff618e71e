"""A Relay module as one Relax function: inputs and weights are told apart, then `main` is evaluated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import tvm
from tvm import relax

from fusion.constants import constant
from fusion.errors import InvalidModelError, ShapeError, UnsupportedOperatorError, unknown_input, unknown_shape
from fusion.frontends.imported import ImportedModel, TensorSpec, names_called
from fusion.frontends.nan_note import nan_note
from fusion.frontends.relay.evaluate import Evaluator
from fusion.frontends.relay.missing import refuse_missing
from fusion.frontends.relay.program import RelayProgram
from fusion.frontends.relay.scope import BindingScope, Closure, Value, tensors_of
from fusion.frontends.relay.syntax import Function, Parameter, RelayModule, TensorType, TupleType, Type
from fusion.shapes import dims_of

Shapes = Mapping[str, Sequence[int]]


def translate(module: RelayModule, params: Mapping[str, np.ndarray], shapes: Shapes) -> ImportedModel:
    """Return `main` of `module` as Relax with static shapes.

    A tuple among its parameters becomes inputs called `name.0`, `name.1`; a result that is a nested tuple becomes its
    tensors in order, called `output_0` and so on.

    Args:
        module: With a `main`.
        params: Values of parameters of `main`, of the types that these have.
        shapes: Of the inputs whose type has dimensions `?`; others may be named too.

    Raises:
        InvalidModelError: A name is not defined, or types contradict each other.
        UnsupportedOperatorError: An operator has no translation, or is used as none takes it, or a function recurs.
        ShapeError: `shapes` names no input, contradicts one, or leaves a dimension open.
    """
    main = module.functions["main"]
    refuse_missing(module)
    inputs: dict[str, relax.Var] = {}
    arguments = _arguments(main, params, shapes, inputs)
    program = RelayProgram(module.functions)
    evaluator = Evaluator(program)
    try:
        mod, value = evaluator.make_main(
            list(inputs.values()), lambda: evaluator.call(Closure(main, BindingScope()), arguments, main.position)
        )
    except RecursionError as error:
        raise UnsupportedOperatorError(
            "expressions or functions are nested too deeply", hint="bind parts of them with `let`"
        ) from error
    results = tuple(_spec(f"output_{index}", tensor) for index, tensor in enumerate(tensors_of(value)))
    specs = tuple(_spec(name, variable) for name, variable in inputs.items())
    notes = [note for name, array in params.items() if array.dtype.kind not in "iub" for note in nan_note(name, array)]
    return ImportedModel(mod, specs, results, branches=_called(mod, program.branches), notes=tuple(notes))


def _called(mod: tvm.IRModule, branches: Mapping[str, tvm.IRModule]) -> dict[str, tvm.IRModule]:
    """Return those of `branches` that `main` may still reach."""
    kept: set[str] = set()
    work = [mod]
    while work:
        found = {name for name in names_called(work.pop()) if name in branches} - kept
        kept |= found
        work += [branches[name] for name in found]
    return {name: branch for name, branch in branches.items() if name in kept}


def _spec(name: str, tensor: relax.Expr) -> TensorSpec:
    return TensorSpec(name, dims_of(tensor.ty.shape), str(tensor.ty.dtype))


def _arguments(
    main: Function, params: Mapping[str, np.ndarray], shapes: Shapes, inputs: dict[str, relax.Var]
) -> list[Value]:
    """Return what `main` is called with: weights, and variables, which are also entered in `inputs`."""
    known = {name for parameter in main.parameters for name, _ in _tensors(parameter.name, parameter.type)}
    strangers = [name for name in shapes if name not in known]
    if strangers:
        raise unknown_input(strangers[0], sorted(known - params.keys()))
    return [_argument(parameter.name, parameter.type, parameter=parameter, params=params, shapes=shapes, inputs=inputs)
            for parameter in main.parameters]


def _tensors(name: str, kind: Type | None) -> Iterator[tuple[str, TensorType]]:
    if isinstance(kind, TupleType):
        for index, field in enumerate(kind.fields):
            yield from _tensors(f"{name}.{index}", field)
    elif isinstance(kind, TensorType):
        yield name, kind


def _argument(
    name: str,
    kind: Type | None,
    parameter: Parameter,
    params: Mapping[str, np.ndarray],
    shapes: Shapes,
    inputs: dict[str, relax.Var],
) -> Value:
    if isinstance(kind, TupleType):
        return tuple(
            _argument(f"{name}.{index}", field, parameter=parameter, params=params, shapes=shapes, inputs=inputs)
            for index, field in enumerate(kind.fields)
        )
    if not isinstance(kind, TensorType):
        raise InvalidModelError(f"%{name} of @main is no tensor", where=str(parameter.position))
    if name in params:
        return constant(params[name])
    inputs[name] = relax.Var(f"input_{len(inputs)}", relax.TensorType(_static(name, kind, shapes), kind.dtype))
    return inputs[name]


def _static(name: str, kind: TensorType, shapes: Shapes) -> tuple[int, ...]:
    """Return the shape of an input, its open dimensions as `shapes` has them."""
    if name not in shapes:
        shape = tuple(extent for extent in kind.shape if extent is not None)
        if len(shape) < len(kind.shape):
            raise unknown_shape(name, kind.shape)
        return shape
    given, where = tuple(int(extent) for extent in shapes[name]), f"shapes[{name!r}] = {tuple(shapes[name])}"
    if len(given) != len(kind.shape):
        raise ShapeError(f"input {name!r} has rank {len(kind.shape)}, not {len(given)}", where=where)
    for axis, (have, want) in enumerate(zip(given, kind.shape, strict=True)):
        if want not in (None, have):
            raise ShapeError(f"dimension {axis} of input {name!r} is {want}, not {have}", where=where)
    return given
