"""Picks the frontend for what the user brought."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
import tvm

from fusion.errors import OptionError
from fusion.foreign_files import check_model_file
from fusion.frontends import relax_module, torch
from fusion.frontends.imported import ImportedModel, TensorSpec
from fusion.frontends.onnx import (
    OnnxImporter,
    import_whole_onnx,
    read_onnx_overridable,
    read_onnx_signature,
    take_as_inputs,
)
from fusion.frontends.relay.source import find_text
from fusion.frontends.relay.syntax import RelayModel
from fusion.stages import stage

if TYPE_CHECKING:
    from fusion.frontends.relay.parameters import Parameters

Shapes = Mapping[str, Sequence[int]]
Importer = Callable[[Shapes], ImportedModel]
Signature = tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]


def open_model(model: Any, params: Parameters | None = None, dynamic_shapes: Any = None) -> Any:
    """Return a Relay module as a `RelayModel` and a torch program as a `TorchModel`, which are read only once, and any
    other model as it is.

    Args:
        model: As for `import_model`.
        params: Values of parameters of a Relay module's `main`: a mapping, or a file of them.
        dynamic_shapes: Of a torch module, as for `torch.export.export`.

    Raises:
        RelayTextError: The text breaks Relay's rules.
        ParameterFileError: The file of `params` cannot be read.
        OptionError: `params` or `dynamic_shapes` does not fit the module, or is given with a model of another kind.
        ModelFileError, InvalidModelError, UnsupportedOperatorError: As `import_model` does.
    """
    text = find_text(model)
    if text is not None:
        # Here, not above: of all models only these need the parser.
        from fusion.frontends.relay.model import open_relay

        return open_relay(text, params)
    if params is not None:
        raise OptionError(
            f"params= is of no use with {_kind(model)}",
            why="it is for Relay modules; models of other kinds bring their weights along",
            hint="leave it out",
        )
    if torch.accepts(model):
        return torch.open_torch(model, dynamic_shapes)
    if dynamic_shapes is not None:
        raise OptionError(
            f"dynamic_shapes= is of no use with {_kind(model)}",
            why="it is for torch modules; models of other kinds say themselves which dimensions they leave open",
            hint="leave it out",
        )
    return model


@stage("import")
def import_model(
    model: Any, shapes: Shapes | None = None, *, strict: bool = False, byte_products: tuple[tuple[str, str], ...] = (),
    by_libraries: bool = False,
) -> ImportedModel:  # fmt: skip
    """Return `model` as Relax with static shapes.

    Args:
        model: Path of an ONNX file, `onnx.ModelProto`, `tvm.IRModule` (Relax), `torch.export.ExportedProgram`, a
            tuple of a `torch.nn.Module` and its example inputs, or a Relay module: its text, the path of that, an
            object with `astext`, or a tuple of it and its parameters.
        shapes: Concrete shape of each input that the model itself leaves open; inputs that are closed may be named too.
        strict: Refuse a model that needs a fallback subgraph.
        byte_products: The products of bytes for which the target has kernels (`KernelCompiler.byte_products`).
        by_libraries: Whether libraries are to run all operators: of an ONNX model ONNX Runtime gets those that become
            kernels of ours at once, unless `strict`.

    Raises:
        ModelFileError: The file or the data it points at cannot be read.
        RelayTextError: The text of a Relay module breaks Relay's rules.
        InvalidModelError: The model breaks its format's rules.
        UnsupportedOperatorError: `strict` and an operator needs the fallback, or no backend knows it.
        ShapeError: `shapes` contradicts the model, or leaves a dimension open.
        OptionError: `model` is of a kind no frontend takes.
    """
    read = importer(model, strict=strict, byte_products=byte_products, by_libraries=by_libraries)
    return read(shapes or {})


def importer(
    model: Any, *, strict: bool = False, byte_products: tuple[tuple[str, str], ...] = (), by_libraries: bool = False
) -> Importer:
    """Return what imports `model` for given shapes, as `import_model` does, and reads it once.

    Raises:
        FusionError: As `import_model` raises of models that cannot be read.
    """
    model = open_model(model)
    if isinstance(model, (str, Path, onnx.ModelProto)):
        source = _onnx_source(model)
        return OnnxImporter.of(source, strict=strict, byte_products=byte_products, by_libraries=by_libraries)
    if isinstance(model, tvm.IRModule):
        return partial(relax_module.import_relax, model)
    if isinstance(model, torch.TorchModel):
        return partial(torch.import_torch, model)
    if isinstance(model, RelayModel):
        from fusion.frontends.relay.model import import_relay

        return partial(import_relay, model)
    raise _not_a_model(model)


def computing_made(read: Importer) -> Importer | None:
    """Return what imports the model of `read`, an ONNX model, with what operators make of sizes alone computed by every
    run; None of other models, of which none do."""
    return replace(read, computes_made=True) if isinstance(read, OnnxImporter) else None


def is_onnx(model: Any) -> bool:
    """Return whether `model`, as `open_model` returned it, is an ONNX file or proto."""
    return isinstance(model, (str, Path, onnx.ModelProto))


def import_whole(model: Any) -> ImportedModel | None:
    """Return `model` as one subgraph for ONNX Runtime, None where that cannot or must not run it.

    Raises:
        FusionError: As `import_model` raises, or ONNX Runtime does not take the model.
    """
    return import_whole_onnx(_onnx_source(model)) if is_onnx(model) else None


@stage("read the signature")
def read_signature(model: Any) -> Signature:
    """Return inputs and outputs of `model` without compiling anything; an unknown dimension is None.

    Raises:
        ModelFileError, RelayTextError, InvalidModelError, OptionError: As `import_model` does.
    """
    model = open_model(model)
    if isinstance(model, (str, Path, onnx.ModelProto)):
        return read_onnx_signature(_onnx_source(model))
    if isinstance(model, tvm.IRModule):
        return relax_module.read_relax_signature(model)
    if isinstance(model, torch.TorchModel):
        return model.signature.inputs, model.signature.outputs
    if isinstance(model, RelayModel):
        from fusion.frontends.relay.model import read_relay_signature

        return read_relay_signature(model)
    raise _not_a_model(model)


def read_overridable(model: Any) -> tuple[TensorSpec, ...]:
    """Return the weights of `model` that its caller may replace: of ONNX models those that are inputs too."""
    return read_onnx_overridable(_onnx_source(model)) if isinstance(model, (str, Path, onnx.ModelProto)) else ()


def with_inputs(model: Any, names: Collection[str]) -> Any:
    """Return `model` with those of `read_overridable` that are called `names` as inputs."""
    return take_as_inputs(_onnx_source(model), names) if names else model


def _onnx_source(model: str | Path | onnx.ModelProto) -> Path | onnx.ModelProto:
    if isinstance(model, onnx.ModelProto):
        return model
    path = Path(model)
    check_model_file(path)
    return path


def _kind(model: Any) -> str:
    return repr(str(model)) if isinstance(model, (str, Path)) else f"a {type(model).__name__}"


def _not_a_model(model: Any) -> OptionError:
    return OptionError(
        f"cannot import a model of type {type(model).__name__}",
        hint="give an ONNX path, an onnx.ModelProto, a Relax tvm.IRModule, a Relay module's text, "
        "a torch ExportedProgram or (module, inputs)",
    )
