"""What every frontend hands to the pipeline."""

from __future__ import annotations

from dataclasses import dataclass, field

import tvm

from fusion.signature import FallbackNode, TensorSpec

__all__ = ["FallbackNode", "ImportedModel", "TensorSpec"]


@dataclass(frozen=True)
class ImportedModel:
    """A model as Relax.

    Attributes:
        mod: Module whose `main` takes the inputs in order, all shapes static, weights as `relax.Constant`s, and
        returns one
            tensor or a tuple of them, in the order of `outputs`. None where the model's own inputs or outputs are no
            tensors
            that TVM can hold (strings, sequences, optionals): then the one entry of `subgraphs` is the whole model.
        inputs, outputs: The signature.
        subgraphs: ONNX bytes of each fallback subgraph by its key. `main` runs one as
            `R.call_pure_packed("fusion.fallback", R.str(key), *inputs)`; `backends.onnxruntime.fallback.register`
            must have
            been called with key and bytes before.
        fallbacks: The nodes in those subgraphs.
    """

    mod: tvm.IRModule | None
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    subgraphs: dict[str, bytes] = field(default_factory=dict)
    fallbacks: tuple[FallbackNode, ...] = ()
