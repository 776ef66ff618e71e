"""A torch program with its signature, read once; each set of input shapes makes a Relax module of it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fusion.declined import Declined
from fusion.errors import ShapeError, unknown_input, unknown_shape
from fusion.frontends.imported import ImportedModel, TensorSpec
from fusion.frontends.relax_module import import_relax
from fusion.frontends.torch.program import accepts_module, first_line, place_of, to_program
from fusion.frontends.torch.quiet import quiet
from fusion.frontends.torch.signature import ANY_SIZE, Signature, read_signature

if TYPE_CHECKING:
    from fusion.frontends.torch.symbolic_program import SymbolicProgram
    from fusion.frontends.torch.traced_sizes import TracedSizes


@dataclass(frozen=True)
class TorchModel:
    """An ExportedProgram and what it takes and returns."""

    program: Any
    signature: Signature

    @cached_property
    def traced(self) -> TracedSizes:
        """The sizes that a program with open ones was traced for."""
        from fusion.frontends.torch.traced_sizes import TracedSizes

        return TracedSizes.of(self.program)

    @cached_property
    def is_uneven(self) -> bool:
        """Whether what a division leaves of a size is a number in it."""
        return any("Mod(" in str(node.meta.get("val")) for node in self.program.graph.nodes)

    @cached_property
    def symbolic(self) -> SymbolicProgram | None:
        """The program decomposed for all sizes; None where that is done at each choice of them."""
        from fusion.frontends.torch.symbolic_program import SymbolicProgram

        with suppress(Declined):
            return SymbolicProgram.of(self.program, self.traced)
        return None


def accepts(model: Any) -> bool:
    """Return whether `model` is a torch program. What torch made can only be given where torch is loaded."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "nn"):
        return False
    return isinstance(model, TorchModel) or accepts_module(torch, model)


def open_torch(model: Any, dynamic_shapes: Any = None) -> TorchModel:
    """Return a torch program exported and its signature read.

    Args:
        model: An ExportedProgram; (module, examples) or (module, examples, keywords), where `examples` is a tuple or
            list of what the module is called with, a dict of its keyword arguments, or its only argument.
        dynamic_shapes: Of a module, as for `torch.export.export`: which dimensions stay open.

    Raises:
        OptionError: A module is given without example inputs, or an open dimension does not fit them.
        InvalidModelError: A module does not run on its example inputs, or a program was exported in training mode.
        UnsupportedOperatorError: torch cannot export the module.
    """
    if isinstance(model, TorchModel):
        return model
    program, notes = to_program(model, dynamic_shapes)
    return TorchModel(program, read_signature(program, notes, dynamic_shapes))


def import_torch(model: TorchModel, shapes: Mapping[str, Sequence[int]]) -> ImportedModel:
    """Return a torch program as Relax, its parameters as constants.

    Raises:
        UnsupportedOperatorError: An operator of the program has no converter, or a weight is of an unknown kind.
        ShapeError: `shapes` contradicts the program, or leaves a dimension open.
    """
    signature = model.signature
    known = _fill(signature.inputs, shapes)
    # Here, not above: it imports torch.
    from fusion.frontends.torch.to_relax import to_relax

    mod, notes = to_relax(_decomposed(model, known), signature.kept)
    imported = import_relax(mod, {})
    inputs = tuple(_named(spec, new) for spec, new in zip(signature.inputs, imported.inputs, strict=True))
    outputs = tuple(_named(spec, new) for spec, new in zip(signature.outputs, imported.outputs, strict=True))
    return ImportedModel(
        imported.mod, inputs, outputs, branches=imported.branches, notes=(*signature.notes, *notes),
        is_uneven=model.is_uneven,
    )  # fmt: skip


def _decomposed(model: TorchModel, shapes: Sequence[tuple[int, ...]]) -> Any:
    """Return the program with these shapes, in operators that are translated."""
    from fusion.frontends.torch.to_relax import decompose

    if all(spec.is_static for spec in model.signature.inputs):
        return decompose(model.program)
    _check_sizes(model, shapes)
    if model.symbolic is not None:
        with suppress(Declined):
            return model.symbolic.at(shapes)
    return decompose(_make_static(model, shapes))


def _named(spec: TensorSpec, found: TensorSpec) -> TensorSpec:
    return TensorSpec(spec.name, found.shape, found.dtype)


def _fill(inputs: Sequence[TensorSpec], shapes: Mapping[str, Sequence[int]]) -> list[tuple[int, ...]]:
    names = [spec.name for spec in inputs]
    for name in shapes:
        if name not in names:
            raise unknown_input(name, names)
    return [_shape(spec, shapes.get(spec.name, spec.shape)) for spec in inputs]


def _shape(spec: TensorSpec, given: Sequence[int | None] | None) -> tuple[int, ...]:
    if given is None or None in given:
        raise unknown_shape(spec.name, spec.shape)
    if not spec.allows(given):
        raise ShapeError(
            f"shapes[{spec.name!r}] = {tuple(given)} contradicts the model",
            where=f"input {spec.name!r}",
            why=spec.misfit(given),
        )
    return tuple(int(extent or 0) for extent in given)


def _check_sizes(model: TorchModel, shapes: Sequence[tuple[int, ...]]) -> None:
    """Raise where a symbol of the program would have two sizes, or one outside its range."""
    sizes: dict[str, int] = {}
    for spec, symbols, shape in zip(model.signature.inputs, model.signature.symbols, shapes, strict=True):
        for axis, (symbol, size) in enumerate(zip(symbols, shape, strict=True)):
            where = f"dimension {axis} of input {spec.name!r}"
            if sizes.setdefault(symbol, size) != size:
                raise ShapeError(f"{where} is {size}, and {sizes[symbol]} elsewhere: the program has one size for both")
            low, high = model.signature.ranges.get(symbol, (0, size))
            if not low <= size <= high:
                sizes_taken = f"{low} to {high}" if high < ANY_SIZE else f"{low} or more"
                raise ShapeError(
                    f"{where} is {size}, and the program was exported for {sizes_taken}",
                    hint="export it with another torch.export.Dim, or give another size",
                )
    with suppress(Declined):  # a size of several symbols tells none
        for guard in model.traced.broken(model.traced.at(shapes)):
            raise ShapeError(
                f"the program was exported for other sizes than {', '.join(map(str, shapes))}",
                why=f"its trace holds where {guard}",
                hint="export it with examples of such sizes",
            )


def _make_static(model: TorchModel, shapes: Sequence[tuple[int, ...]]) -> Any:
    """Return the program traced again with these shapes, which leaves no size to the run."""
    import torch

    pairs = zip(shapes, model.signature.dtypes, strict=True)
    values = iter([torch.zeros(shape, dtype=dtype) for shape, dtype in pairs])
    leaves = [next(values) if constant is None else constant.value for constant in model.signature.constants]
    args, kwargs = torch.utils._pytree.tree_unflatten(leaves, model.program.call_spec.in_spec)
    try:
        with torch.no_grad(), quiet():
            return torch.export.export(model.program.module(check_guards=False), tuple(args), dict(kwargs))
    except Exception as error:  # whatever torch's checks of shapes raise
        raise ShapeError(
            f"the program does not run with the shapes {', '.join(map(str, shapes))}",
            where=place_of(error),
            why=first_line(error),
        ) from error
