"""What every frontend hands to the pipeline."""

from __future__ import annotations

from dataclasses import dataclass, field

import tvm


@dataclass(frozen=True)
class TensorSpec:
    """Name, shape and dtype of a model input or output.

    A dimension that is unknown before the run is None; so is the whole shape where not even the rank is known. The dtype is
    numpy's name of it; values that are no tensors have ONNX's name of their type, such as "seq(tensor(float))".
    """

    name: str
    shape: tuple[int | None, ...] | None
    dtype: str


@dataclass(frozen=True)
class FallbackNode:
    """A node that runs on ONNX Runtime inside the module, and why."""

    op: str
    node: str
    reason: str


@dataclass(frozen=True)
class ImportedModel:
    """A model as Relax.

    Attributes:
        mod: Module whose `main` takes the inputs in order, all shapes static, weights as `relax.Constant`s, and returns one
            tensor or a tuple of them, in the order of `outputs`. None where the model's own inputs or outputs are no tensors
            that TVM can hold (strings, sequences, optionals): then the one entry of `subgraphs` is the whole model.
        inputs, outputs: The signature.
        subgraphs: ONNX bytes of each fallback subgraph by its key. `main` runs one as
            `R.call_pure_packed("fusion.fallback", R.str(key), *inputs)`; `backends.onnxruntime.fallback.register` must have
            been called with key and bytes before.
        fallbacks: The nodes in those subgraphs.
    """

    mod: tvm.IRModule | None
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    subgraphs: dict[str, bytes] = field(default_factory=dict)
    fallbacks: tuple[FallbackNode, ...] = ()
