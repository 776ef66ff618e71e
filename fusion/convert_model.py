"""The public function `convert`: a model as Relax source or as an ONNX file."""

from __future__ import annotations

import keyword
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusion.errors import OptionError, UnsupportedOperatorError
from fusion.frontends import TensorSpec, import_model, open_model
from fusion.frontends.relay.syntax import RelayModel
from fusion.onnx_file import write_onnx
from fusion.options import read_shapes
from fusion.relax_source import write_relax
from fusion.system.files import as_path

if TYPE_CHECKING:
    from fusion.frontends.relay.parameters import Parameters

ONNX_SUFFIX = ".onnx"


@dataclass(frozen=True)
class Converted:
    """What `convert` wrote.

    Attributes:
        path: The Python file, or the ONNX file.
        weights: The file of weights; None where the model has none besides scalars, or they are in the ONNX file.
        inputs, outputs: Of the model; in a script an input is called as its name says, made an identifier.
    """

    path: Path
    weights: Path | None
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


def convert(
    model: Any,
    path: str | Path,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    params: Parameters | None = None,
) -> Converted:
    """Write `model` as Relax to the Python file `path`, and its weights to NAME.safetensors beside it; or as ONNX,
    where `path` is called NAME.onnx.

    `main` of the class `Module` in the Python file takes the weights as parameters behind the inputs; the file's
    `load()` gives the module with the weights bound. Parameters of a Relay module that `params` leaves out are inputs.

    Args:
        model, shapes, params: As for `fusion.compile`.

    Raises:
        FusionError: The model cannot be imported without a fallback; see `fusion.compile`.
        UnsupportedOperatorError: Nor can it be written so: Relax or ONNX has nothing for an operator.
        OptionError: The files cannot be written.
    """
    path = as_path(path)
    if path.suffix != ONNX_SUFFIX:
        _check_name(path)
    shapes = {} if shapes is None else read_shapes(shapes)
    model = open_model(model, params)
    imported = import_model(model, shapes, strict=True)
    if imported.mod is None:
        raise UnsupportedOperatorError("the model cannot be written", why="it runs on ONNX Runtime as a whole")
    if path.suffix == ONNX_SUFFIX:
        weights = write_onnx(imported, path)
    else:
        weights = write_relax(imported, path, model.params if isinstance(model, RelayModel) else {})
    return Converted(path, weights, imported.inputs, imported.outputs)


def _check_name(path: Path) -> None:
    if not path.stem.isidentifier() or keyword.iskeyword(path.stem) or path.suffix != ".py":
        raise OptionError(
            f"{str(path)!r} is no name of a Python module, nor of an ONNX file",
            hint="call it NAME.py, such as model.py, or NAME.onnx",
        )
