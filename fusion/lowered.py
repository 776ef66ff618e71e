"""What the pipeline hands to the build: scheduled kernels and the calls between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import tvm
from tvm import tirx

from backends.kernel import KernelInfo
from fusion.model_graph import ModelGraph


@dataclass(frozen=True)
class Lowered:
    """A model as PrimFuncs and Relax calls.

    Attributes:
        mod: Module whose `main` takes the model's inputs, then the weights, as parameters.
        weights: Values of the weight parameters, in their order.
        kernels: What is known of each PrimFunc, by its name.
        notes: What passes declined to do and why, one sentence each.
        graph: The model before and after, for reports.
        subgraphs: What libraries took of it, by the keys that `main` calls them by.
        sources: The PrimFuncs before they got loops, by name.
        seconds: What a call of kernels took where they were measured before, by name.
    """

    mod: tvm.IRModule
    weights: tuple[tvm.runtime.Tensor, ...]
    kernels: Mapping[str, KernelInfo]
    notes: tuple[str, ...] = ()
    graph: ModelGraph = field(default_factory=ModelGraph)
    subgraphs: Mapping[str, bytes] = field(default_factory=dict)
    sources: Mapping[str, tirx.PrimFunc] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
