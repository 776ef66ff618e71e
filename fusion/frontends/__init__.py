"""From a model file or object to Relax: `import_model` picks the frontend by what it is given."""

from __future__ import annotations

from fusion import closed_builders, convolution_types, quick_objects
from fusion.frontends.dispatch import (
    Importer,
    Signature,
    computing_made,
    import_model,
    import_whole,
    importer,
    is_onnx,
    open_model,
    read_overridable,
    read_signature,
    with_inputs,
)
from fusion.frontends.imported import FallbackNode, ImportedModel, TensorSpec

closed_builders.install()
convolution_types.install()
quick_objects.install()

__all__ = [
    "FallbackNode",
    "ImportedModel",
    "Importer",
    "Signature",
    "TensorSpec",
    "computing_made",
    "import_model",
    "import_whole",
    "importer",
    "is_onnx",
    "open_model",
    "read_overridable",
    "read_signature",
    "with_inputs",
]
