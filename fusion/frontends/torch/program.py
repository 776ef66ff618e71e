"""From what the user brought to an ExportedProgram for inference."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

from fusion.errors import FusionError, InvalidModelError, OptionError, UnsupportedOperatorError
from fusion.frontends.torch.dynamic_shapes import misfit, refusal
from fusion.frontends.torch.quiet import quiet
from fusion.frontends.torch.unknown_outputs import without_unknown_outputs
from fusion.system.forks import Lock

Exported = tuple[Any, tuple[str, ...]]
"""A program, and notes on what it leaves out."""
_TRACEBACKS = ("Original traceback:", "The following call raised this error:")
# torch refuses to save a program while another thread does: what it notes meanwhile is one for the whole process.
_saving = Lock()
_TENSOR_FILE = re.compile(r"/data/(weights/weight|constants/tensor)_\d+$")
_FORM = "give {input: {dimension: torch.export.Dim(name)}}, and None for an input all of whose dimensions are fixed"
TO_ONNX = "export the model to ONNX (torch.onnx.export) and compile that for a CPU, where ONNX Runtime helps"


def accepts_module(torch: Any, model: Any) -> bool:
    """Return whether `model` is an ExportedProgram, a module, or a module with examples."""
    if isinstance(model, tuple):
        return len(model) in (1, 2, 3) and isinstance(model[0], torch.nn.Module)
    return isinstance(model, (torch.nn.Module, torch.export.ExportedProgram))


def to_program(model: Any, dynamic_shapes: Any) -> tuple[Any, tuple[str, ...]]:
    """Return `model` as an ExportedProgram, and notes on what is left out. See `open_torch` for the rest."""
    import torch

    if isinstance(model, torch.export.ExportedProgram):
        if dynamic_shapes is not None:
            raise OptionError(
                "dynamic_shapes= is of no use with a torch.export.ExportedProgram",
                why="its open dimensions were settled when it was exported",
                hint="give it to torch.export.export",
            )
        _check_inference(model)
        return model, ()
    if not isinstance(model, tuple) or len(model) < 2:
        raise OptionError(
            "a torch module needs example inputs", hint="give (module, (example_input, ...)) to fusion.compile"
        )
    module, examples = model[0], model[1]
    keywords = dict(model[2] or {}) if len(model) == 3 and isinstance(model[2], (Mapping, type(None))) else None
    if keywords is None and len(model) == 3:
        raise OptionError(
            f"the keyword arguments of a torch module are a dict, not a {type(model[2]).__name__}",
            hint="give (module, (example_input, ...), {name: example_input})",
        )
    if isinstance(examples, Mapping) and all(isinstance(key, str) for key in examples) and keywords is None:
        return _export_by_dict(module, dict(examples), dynamic_shapes)
    args = tuple(examples) if isinstance(examples, (tuple, list)) else (examples,)
    return _export(module, args, keywords or {}, dynamic_shapes)


def _export_by_dict(module: Any, examples: dict[str, Any], dynamic_shapes: Any) -> Exported:
    """Export with a dict of examples: keyword arguments, or if the module does not take these, its only argument."""
    import inspect

    try:
        inspect.signature(module.forward).bind(**examples)
    except (TypeError, ValueError):
        return _export(module, (examples,), {}, dynamic_shapes)
    return _export(module, (), examples, dynamic_shapes)


def _export(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any) -> Exported:
    """Return `module` exported as it is for inference, and leave its parts in the modes they are in.

    Raises:
        InvalidModelError: The module does not run on the examples.
        OptionError: `dynamic_shapes` does not fit them.
        UnsupportedOperatorError: It runs, but torch cannot export it.
    """
    import torch

    modes = {part: part.training for part in module.modules()}
    args, kwargs = _apart((args, kwargs))
    try:
        with torch.no_grad(), quiet():
            module.eval()
            try:
                return torch.export.export(module, args, kwargs, dynamic_shapes=dynamic_shapes), ()
            except Exception as error:  # whatever the module's own code raises
                if (reduced := without_unknown_outputs(module, args, kwargs)) is None:
                    raise _export_error(module, args, kwargs, dynamic_shapes, error) from error
            return torch.export.export(reduced.module, args, kwargs, dynamic_shapes=dynamic_shapes), reduced.notes
    except FusionError:
        raise
    except Exception as error:  # whatever the module's own code raises
        raise _export_error(module, args, kwargs, dynamic_shapes, error) from error
    finally:
        for part, mode in modes.items():
            part.training = mode


def _apart(examples: Any) -> Any:
    """Return examples of which no two are one tensor: torch exports a module that was given the same twice as one that
    reads its first input in both places, and says nothing."""
    import torch
    from torch.utils import _pytree as pytree

    seen = set[int]()

    def own(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        again = id(value) in seen
        seen.add(id(value))
        return value.clone() if again else value

    return pytree.tree_map(own, examples)


def _export_error(
    module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any, error: Exception
) -> FusionError:
    import torch

    name = type(module).__name__
    try:
        with torch.no_grad(), quiet():
            module(*args, **kwargs)
    except Exception as cause:  # whatever the module's own code raises
        return InvalidModelError(
            f"the module {name} does not run on its example inputs",
            why=first_line(cause),
            hint="give what module(*examples) takes: (module, (example_input, ...))",
        )
    if dynamic_shapes is not None and _exports(module, args, kwargs):
        what = f"torch cannot export the module {name} with these dynamic_shapes"
        if wrong := misfit(module, args, kwargs, dynamic_shapes):
            return OptionError(what, why=wrong, hint=_FORM)
        why = refusal(error) or first_line(error)
        return OptionError(what, why=why, hint="leave these dimensions fixed, or give torch.export.Dim.AUTO for them")
    return UnsupportedOperatorError(
        f"torch cannot export the module {name}", where=place_of(error), why=first_line(error), hint=TO_ONNX
    )


def _exports(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    import torch

    try:
        with torch.no_grad(), quiet():
            torch.export.export(module, args, kwargs)
    except Exception:  # whatever the module's own code raises
        return False
    return True


def program_files(program: Any) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each file of the archive that torch writes of an ExportedProgram, but for the tensors
    that `weight_bytes` yields.

    Raises:
        Exception: torch cannot write it, as it holds what is no data, and says so in any of its own classes.
    """
    import torch

    file = io.BytesIO()
    with _saving, quiet():
        torch.export.save(program, file)
    with zipfile.ZipFile(file) as archive:
        for name in archive.namelist():
            if not _TENSOR_FILE.search(name):
                yield name, archive.read(name)


def weight_bytes(program: Any) -> Iterator[tuple[str, memoryview]]:
    """Yield name and bytes of each parameter, buffer and constant tensor of an ExportedProgram."""
    import torch

    for name, value in {**program.state_dict, **program.constants}.items():
        if isinstance(value, torch.Tensor):
            yield name, value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


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


def place_of(error: Exception) -> str:
    """Return the file, line and text of the module's code at which torch failed, as its message has it; "" if it does
    not."""
    message = str(error)
    told = next((message.partition(start)[2] for start in _TRACEBACKS if start in message), "")
    frames = [line.strip() for line in told.splitlines()]
    last = max((index for index, line in enumerate(frames) if line.startswith('File "')), default=None)
    return "" if last is None else " ".join(frames[last : last + 2])


def first_line(error: Exception) -> str:
    """Return what `error` says, without what follows its first line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
