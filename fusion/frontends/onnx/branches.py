"""An If that only the run decides: what its branches read, whether they return the same, and which are reached."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
import tvm
from onnx import NodeProto, TensorProto, TypeProto, numpy_helper

from fusion.declined import Declined
from fusion.frontends.imported import ImportedModel, TensorSpec, names_called
from fusion.frontends.onnx.expand import captured
from fusion.frontends.onnx.fallback import OnnxSubgraph
from fusion.frontends.onnx.scope import ValueScope
from fusion.frontends.onnx.types import known_dims


@dataclass(frozen=True)
class Branch:
    """One branch of an If and what it reads of the graph around it.

    Attributes:
        graph: Its nodes and results.
        constants: Values that are known before the run; among them the If's condition, which decided for this branch.
        inputs: Types of the other values, the same for both branches.
    """

    graph: onnx.GraphProto
    constants: Mapping[str, TensorProto]
    inputs: Mapping[str, TypeProto]


def split_if(node: NodeProto, scope: ValueScope) -> tuple[Branch, Branch]:
    """Return what `node` runs where its condition holds, and what it runs elsewhere.

    Raises:
        Declined: The condition is not one bool, or a branch returns another number of values than the If.
    """
    condition = node.input[0]
    kind = scope.types.get(condition, TypeProto())
    shape = known_dims(kind)
    if kind.tensor_type.elem_type != TensorProto.BOOL or math.prod(shape or ()) != 1:
        raise Declined("its condition is not one bool")
    graphs = {attribute.name: attribute.g for attribute in node.attribute}
    then, other = graphs["then_branch"], graphs["else_branch"]
    if not len(then.output) == len(other.output) == len(node.output):
        raise Declined("its branches return another number of values")
    # Where the shape is open, a constant of some shape would claim to know it.
    decided = {} if shape is None else {condition: shape}
    known = [name for name in dict.fromkeys(captured(node)) if name in scope.types]
    constants = {name: scope.tensor(name) for name in known if name in scope.constants}
    inputs = {name: scope.types[name] for name in known if name not in constants and name not in decided}

    def branch(graph: onnx.GraphProto, value: bool) -> Branch:
        decision = {name: numpy_helper.from_array(np.full(dims, value)) for name, dims in decided.items()}
        return Branch(graph, constants | decision, inputs)

    return branch(then, True), branch(other, False)


def common_results(then: ImportedModel, other: ImportedModel) -> tuple[TensorSpec, ...]:
    """Return what both branches return.

    Raises:
        Declined: They return tensors of different or open shapes, or of different dtypes.
    """
    then_kinds, other_kinds = ([(spec.shape, spec.dtype) for spec in model.outputs] for model in (then, other))
    if then_kinds != other_kinds or not all(spec.is_static for spec in then.outputs):
        raise Declined("its branches return values of different or unknown shapes")
    return then.outputs


def assemble(
    mod: tvm.IRModule,
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
    subgraphs: Mapping[str, OnnxSubgraph],
    branches: Mapping[str, ImportedModel],
) -> ImportedModel:
    """Return the model of `mod` with those of `subgraphs` and `branches` that its `main` still calls."""
    called = names_called(mod) if subgraphs or branches else set[str]()
    kept = {key: subgraph for key, subgraph in subgraphs.items() if key in called}
    data = {key: subgraph.data for key, subgraph in kept.items()}
    nodes = [node for subgraph in kept.values() for node in subgraph.nodes]
    mods: dict[str, tvm.IRModule] = {}
    for name, branch in branches.items():
        if name in called:
            data.update(branch.subgraphs)
            nodes += branch.fallbacks
            mods.update({**branch.branches, name: branch.mod})
    return ImportedModel(
        mod=mod, inputs=inputs, outputs=outputs, subgraphs=data, fallbacks=tuple(nodes), branches=mods,
        has_zero_means=True,
    )  # fmt: skip
