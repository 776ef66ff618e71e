"""Completes the inputs of a module with random arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches

import numpy as np

from fusion.compiled_module import CompiledModule
from fusion.errors import ExecutionError, InputError, ShapeError
from fusion.module.random_inputs import random_inputs
from fusion.signature import TensorSpec, complete_shapes

Shapes = Mapping[str, Sequence[int]]


def complete_inputs(
    module: CompiledModule, given: Mapping[str, np.ndarray], shapes: Shapes, seed: int
) -> dict[str, np.ndarray]:
    """Return `given` and a random array for each other input; `shapes` says how large where the module leaves it open,
    or a dimension of the same name, or the form that a loaded one has.

    Raises:
        InputError: The module has no such input.
        ShapeError: An input's shape is open and `shapes` does not name it.
    """
    _refuse_strangers(module, (*given, *shapes))
    known = complete_shapes(module.inputs, {**shapes, **{name: array.shape for name, array in given.items()}})
    rest = [_shaped(spec, known) for spec in module.inputs if spec.name not in given]
    forms = [form.inputs for form in module.specializations if form.opened is None]
    if forms and not all(spec.is_static for spec in rest):
        rest = [spec for spec in _of_the_form(forms, known) if spec.name not in given]
    return {**given, **random_inputs(rest, seed)}


@contextmanager
def random_values(module: CompiledModule, given: Iterable[str]) -> Iterator[None]:
    """Let the error of a run on completed inputs say which of them were random: no operator takes every value."""
    names = [spec.name for spec in module.inputs if spec.name not in given]
    try:
        yield
    except ExecutionError as error:
        if names:
            options = " ".join(f"--input {name}=FILE.npy" for name in names)
            error.hint = f"the values of {', '.join(map(repr, names))} were random: give such as fit with {options}"
        raise


def _refuse_strangers(module: CompiledModule, names: Iterable[str]) -> None:
    known = [spec.name for spec in module.inputs]
    for name in names:
        if name not in known and name not in [spec.name for spec in module.overridable]:
            close = get_close_matches(name, known, 1)
            raise InputError(
                f"the model has no input {name!r}",
                why=f"its inputs are {', '.join(map(repr, known)) or 'none'}",
                hint=f"did you mean {close[0]!r}?" if close else "use these names",
            )


def _shaped(spec: TensorSpec, shapes: Shapes) -> TensorSpec:
    return TensorSpec(spec.name, tuple(shapes[spec.name]), spec.dtype) if spec.name in shapes else spec


def _of_the_form(forms: Sequence[tuple[TensorSpec, ...]], known: Shapes) -> tuple[TensorSpec, ...]:
    """Return the inputs of the only one of `forms`, each for one shape, that takes the shapes in `known`.

    Raises:
        ShapeError: There are several, or none.
    """
    fitting = [
        inputs for inputs in forms if all(spec.allows(known[spec.name]) for spec in inputs if spec.name in known)
    ]
    if len(fitting) == 1:
        return fitting[0]
    held = [", ".join(f"'{spec.name}': {spec.shape}" for spec in inputs if spec.shape is not None) for inputs in forms]
    raise ShapeError(
        "the shapes of the inputs are not known",
        why=f"{len(fitting) or 'none'} of the {len(forms)} forms that the module has take those that are given",
        hint="give one of " + "; or ".join(f"shapes={{{shapes}}}" for shapes in held),
    )
