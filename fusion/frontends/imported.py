"""What every frontend hands to the pipeline."""

from __future__ import annotations

from dataclasses import dataclass, field

import tvm


@dataclass(frozen=True)
class TensorSpec:
    """Name, shape and dtype of a model input or output. A dimension that is unknown before the run is None."""

    name: str
    shape: tuple[int | None, ...]
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
            tensor or a tuple of them, in the order of `outputs`.
        inputs, outputs: The signature.
        subgraphs: ONNX bytes of each fallback subgraph by its key. `main` runs one as
            `R.call_pure_packed("fusion.fallback", R.str(key), *inputs)`.
        fallbacks: The nodes in those subgraphs.
    """

    mod: tvm.IRModule
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    subgraphs: dict[str, bytes] = field(default_factory=dict)
    fallbacks: tuple[FallbackNode, ...] = ()
