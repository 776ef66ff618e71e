"""Writes a model as an ONNX file."""

from __future__ import annotations

from pathlib import Path

import onnx
from tvm import relax

from backends.to_onnx.export import export_function
from fusion.errors import OptionError, UnsupportedOperatorError
from fusion.frontends import ImportedModel
from fusion.passes.inline_branches import InlineBranches

_LARGEST = 1 << 30
"""Bytes of weights up to which they lie in the file itself; protobuf takes less than twice as many."""


def write_onnx(imported: ImportedModel, path: Path) -> Path | None:
    """Write a model to `path`, and weights that are too large for it to NAME.onnx.data beside it; return that file,
    None where there is none.

    Raises:
        UnsupportedOperatorError: ONNX has nothing for an operator.
        OptionError: The files cannot be written.
    """
    mod = relax.transform.CanonicalizeBindings()(InlineBranches(imported.branches)(imported.mod))
    inputs, outputs = ([spec.name for spec in specs] for specs in (imported.inputs, imported.outputs))
    try:
        model = export_function(mod["main"], inputs, outputs, path.stem)
    except RecursionError as error:
        raise UnsupportedOperatorError("the model is nested too deeply") from error
    weights = sum(len(tensor.raw_data) for tensor in model.graph.initializer)
    beside = path.with_name(f"{path.name}.data") if weights > _LARGEST else None
    try:
        if beside is None:
            onnx.save(model, path)
        else:
            beside.unlink(missing_ok=True)  # onnx appends to it
            onnx.save(model, path, save_as_external_data=True, location=beside.name)
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise OptionError(f"cannot write {str(path)[:200]!r}", why=why) from error
    return beside
