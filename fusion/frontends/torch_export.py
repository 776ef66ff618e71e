"""Takes a PyTorch program: an ExportedProgram, or a module with example inputs. PyTorch is optional."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import tvm
from tvm import relax

from fusion.errors import FusionError, InvalidModelError, OptionError, UnsupportedOperatorError
from fusion.frontends.imported import ImportedModel, TensorSpec
from fusion.frontends.relax_module import import_relax, read_relax_signature
from fusion.frontends.torch_converters import CONVERTERS


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
        InvalidModelError: A module does not run on its example inputs, or a program was exported in training mode.
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
        _check_inference(model)
        return model
    if not isinstance(model, tuple):
        raise OptionError(
            "a torch module needs example inputs", hint="give (module, (example_input, ...)) to fusion.compile"
        )
    module, examples = model
    return _export(module, tuple(examples) if isinstance(examples, (tuple, list)) else (examples,))


def _export(module: Any, examples: tuple[Any, ...]) -> Any:
    """Return `module` exported as it is for inference, and leave its parts in the modes they are in.

    Raises:
        InvalidModelError: The module does not run on `examples`.
        UnsupportedOperatorError: It runs, but torch cannot export it.
    """
    import torch

    modes = {part: part.training for part in module.modules()}
    try:
        with torch.no_grad(), _quiet():
            return torch.export.export(module.eval(), examples)
    except Exception as error:  # whatever the module's own code raises
        raise _export_error(module, examples, error) from error
    finally:
        for part, mode in modes.items():
            part.training = mode


def _export_error(module: Any, examples: tuple[Any, ...], error: Exception) -> FusionError:
    import torch

    name = type(module).__name__
    try:
        with torch.no_grad():
            module(*examples)
    except Exception as cause:  # whatever the module's own code raises
        return InvalidModelError(
            f"the module {name} does not run on its example inputs",
            why=_first_line(cause),
            hint="give what module(*examples) takes: (module, (example_input, ...))",
        )
    return UnsupportedOperatorError(
        f"torch cannot export the module {name}",
        why=_first_line(error),
        hint="export the model to ONNX (torch.onnx.export) and compile that",
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence what torch 2.13 says of itself in every export: nothing that the user can change."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    disabled, logger.disabled = logger.disabled, True
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)` is deprecated", FutureWarning)
            yield
    finally:
        logger.disabled = disabled


def _check_inference(program: Any) -> None:
    """Refuse a program that was exported while training: it would drop out and normalise at random.

    Raises:
        InvalidModelError: A node of it trains.
    """
    for node in program.graph.nodes:
        if _trains(node):
            raise InvalidModelError(
                "the program was exported in training mode",
                where=f"{node.target} ({node.name})",
                hint="call module.eval() before torch.export.export",
            )


def _trains(node: Any) -> bool:
    """Whether a node drops out or takes the statistics of its batch."""
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or schema is None:
        return False
    names = [argument.name for argument in schema.arguments]
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    training = any(given.get(name) is True for name in ("train", "training"))
    # Dropping out with probability 0 is what an LSTM in training mode does.
    return training and given.get("p", given.get("dropout", 1)) != 0


def _to_relax(program: Any) -> tvm.IRModule:
    from tvm.relax.frontend.torch import from_exported_program

    try:
        with _quiet():
            mod = from_exported_program(
                program,
                keep_params_as_input=False,
                unwrap_unit_return_tuple=True,
                custom_convert_map=CONVERTERS,
            )
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


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def _output_names(program: Any) -> list[str]:
    return [
        str(spec.arg.name)
        for spec in program.graph_signature.output_specs
        if spec.kind.name == "USER_OUTPUT" and hasattr(spec.arg, "name")
    ]
