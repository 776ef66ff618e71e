"""Takes a PyTorch program: an ExportedProgram, or a module with example inputs. PyTorch is optional."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import tvm
from tvm import relax

from fusion.errors import OptionError, UnsupportedOperatorError
from fusion.frontends.imported import ImportedModel, TensorSpec
from fusion.frontends.relax_module import import_relax, read_relax_signature


def accepts(model: Any) -> bool:
    """Return whether `model` is a torch program. What torch made can only be given where torch is loaded."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    if isinstance(model, tuple):
        return len(model) == 2 and isinstance(model[0], torch.nn.Module)
    return isinstance(model, (torch.nn.Module, torch.export.ExportedProgram))


def import_torch(model: Any, shapes: Mapping[str, Sequence[int]]) -> ImportedModel:
    """Return a torch program as Relax, its parameters as constants.

    Raises:
        OptionError: A module is given without example inputs.
        UnsupportedOperatorError: TVM has no converter for an operator of the program.
        ShapeError: `shapes` contradicts the program.
    """
    program = _program(model)
    imported = import_relax(_to_relax(program), shapes)
    names = _output_names(program)
    if len(names) != len(imported.outputs):
        return imported
    outputs = tuple(
        TensorSpec(name, spec.shape, spec.dtype) for name, spec in zip(names, imported.outputs, strict=True)
    )
    return ImportedModel(imported.mod, imported.inputs, outputs)


def read_torch_signature(model: Any) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Return the inputs and outputs of a torch program."""
    program = _program(model)
    inputs, outputs = read_relax_signature(_to_relax(program))
    names = _output_names(program)
    if len(names) == len(outputs):
        outputs = tuple(TensorSpec(name, spec.shape, spec.dtype) for name, spec in zip(names, outputs, strict=True))
    return inputs, outputs


def _program(model: Any) -> Any:
    import torch

    if isinstance(model, torch.export.ExportedProgram):
        return model
    if not isinstance(model, tuple):
        raise OptionError("a torch module needs example inputs", hint="give (module, (example_input, ...))")
    module, examples = model
    with torch.no_grad():
        return torch.export.export(
            module.eval(), tuple(examples) if isinstance(examples, (tuple, list)) else (examples,)
        )


def _to_relax(program: Any) -> tvm.IRModule:
    from tvm.relax.frontend.torch import from_exported_program

    try:
        mod = from_exported_program(program, keep_params_as_input=False, unwrap_unit_return_tuple=True)
    except (AssertionError, NotImplementedError, ValueError, KeyError) as error:
        raise UnsupportedOperatorError(
            "the torch program holds an operator without converter",
            why=str(error)[:300],
            hint="export the model to ONNX (torch.onnx.export) and compile that",
        ) from error
    mod["main"] = (
        mod["main"].without_attr("params") if mod["main"].attrs and "params" in mod["main"].attrs else mod["main"]
    )
    return relax.transform.DeadCodeElimination()(mod)


def _output_names(program: Any) -> list[str]:
    return [
        str(spec.arg.name)
        for spec in program.graph_signature.output_specs
        if spec.kind.name == "USER_OUTPUT" and hasattr(spec.arg, "name")
    ]
