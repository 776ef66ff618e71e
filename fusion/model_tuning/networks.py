"""Models as networks of kernels, which a job tunes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fusion.api import Shapes, bind_shapes
from fusion.context import Context
from fusion.declined import Declined
from fusion.errors import OptionError, ShapeError, unknown_input
from fusion.frontends import import_model, open_model, read_signature
from fusion.frontends.branched import join_branches
from fusion.measuring import KernelNetwork, Measuring, read_network
from fusion.module.random_inputs import random_inputs
from fusion.pipeline import lower_graph
from fusion.signature import TensorSpec, complete_shapes, name_dims, require_dims, require_static


@dataclass(frozen=True)
class GivenModel:
    """A model as somebody gave it.

    Attributes:
        name: For people; no other of the job has it.
        model: As `open_model` returns it.
        shapes: Of the inputs that it leaves open.
    """

    name: str
    model: Any
    shapes: Shapes


def read_models(
    models: Any, shapes: Mapping[str, Sequence[int | str]], bounds: Mapping[str, range]
) -> list[GivenModel]:
    """Return one model, or those of a list, each with those of the `shapes` that are of its inputs.

    Raises:
        OptionError: The list is empty.
        ShapeError: A model leaves a dimension open, or a shape is of no input of any, or one of the `bounds` of no
            dimension, or a size is not within these.
        FusionError: A model cannot be read.
    """
    some = models if isinstance(models, list) else [models]
    if not some:
        raise OptionError("there is no model to tune", hint="give one, or a list of several")
    given, known, seen = list[GivenModel](), dict[str, None](), list[TensorSpec]()
    for model, name in zip(some, _names(some), strict=True):
        opened = open_model(model)
        inputs, _ = read_signature(opened)
        known |= dict.fromkeys(spec.name for spec in inputs)
        mine = {spec.name: shapes[spec.name] for spec in inputs if spec.name in shapes}
        inputs, named = name_dims(inputs, mine)
        complete = complete_shapes(inputs, named)
        bound = bind_shapes(inputs, complete)
        require_static(bound, "kernels are measured at one size of each dimension")
        seen += bound
        given.append(GivenModel(name, opened, complete))
    for name in shapes:
        if name not in known:
            raise unknown_input(name, list(known))
    require_dims(seen, bounds)
    return given


def network_of(given: GivenModel, ctx: Context, measured: Measuring) -> KernelNetwork:
    """Return the kernels of a model at their defaults.

    Raises:
        Declined: It has none, or nobody can say what it is run on.
        FusionError: The model is at fault.
    """
    imported = import_model(given.model, given.shapes, byte_products=ctx.compiler.byte_products)
    if imported.mod is None:
        raise Declined("ONNX Runtime runs all of it")
    try:
        arrays = list(random_inputs(imported.inputs).values())
    except ShapeError as error:  # an input of texts
        raise Declined(error.what) from error
    mod = join_branches(imported.mod, imported.branches)
    lowered = lower_graph(mod, ctx, measured.profitability(), measured.layout())
    return read_network(lowered.mod, arrays, ctx.compiler)


def _names(models: Sequence[Any]) -> Iterator[str]:
    """Yield a name for each, of its file where there is one."""
    seen = Counter[str]()
    for place, model in enumerate(models, 1):
        is_file = isinstance(model, str | os.PathLike) and "\n" not in str(model)
        name = Path(model).stem if is_file else f"model {place}"
        seen[name] += 1
        yield name if seen[name] == 1 else f"{name} ({seen[name]})"
