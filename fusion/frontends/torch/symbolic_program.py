"""A torch program with open sizes, decomposed once: what it is at each choice of sizes, without another trace."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._pytree import tree_leaves

from fusion.declined import Declined
from fusion.frontends.torch.decompositions import decompositions
from fusion.frontends.torch.quiet import quiet
from fusion.frontends.torch.to_relax import OF_STORAGE
from fusion.frontends.torch.traced_sizes import Sizes, TracedSizes, extent, formula
from fusion.system.forks import Lock

# What refuses new guards is a state of the program's sizes, which threads that import it share.
_decomposing = Lock()


@dataclass(frozen=True)
class SymbolicProgram:
    """A decomposed ExportedProgram whose sizes are symbols of torch's."""

    program: Any
    traced: TracedSizes

    @classmethod
    def of(cls, program: Any, traced: TracedSizes) -> SymbolicProgram:
        """Return `program` decomposed.

        Raises:
            Declined: What its operators are made of depends on its sizes, for this reason.
        """
        for node in program.graph.nodes:
            if node.op == "get_attr" or node.target in OF_STORAGE:
                raise Declined(f"{node.name} is looked at where all sizes are known")
        ShapeEnv._inner_evaluate_expr.cache_clear()  # it knows answers that were guards, and which export ignored
        try:
            with _decomposing, torch.no_grad(), quiet(), traced.env.error_on_new_guards():
                return cls(program.run_decompositions(decompositions()), traced)
        except Exception as error:  # whatever torch's own checks raise
            raise Declined(str(error)) from error

    def at(self, shapes: Sequence[Sequence[int]]) -> Any:
        """Return the program where its input tensors have these `shapes`.

        Raises:
            Declined: It may be another one there.
        """
        sizes = self.traced.at(shapes)
        for reason in (*self.traced.outside(sizes), *self.traced.broken(sizes)):
            raise Declined(reason)
        try:
            with torch.no_grad(), quiet(), FakeTensorMode(allow_non_fake_inputs=True):
                graph = _substitute(self.program.graph, sizes)
        except Declined:
            raise
        except Exception as error:  # whatever torch's operators raise
            raise Declined(str(error)) from error
        found = copy.copy(self.program)
        found._graph_module = fx.GraphModule(self.program.graph_module, graph)
        found._graph_signature = copy.deepcopy(self.program.graph_signature)
        return found


def _substitute(graph: fx.Graph, sizes: Sizes) -> fx.Graph:
    """Return `graph` with numbers in place of what it computes of sizes.

    Raises:
        Declined: A node gives another shape than its formula says.
    """
    found, known = fx.Graph(), dict[fx.Node, Any]()
    for node in graph.nodes:
        value = None if node.op == "output" else _value(node, known, sizes)
        is_kept = node.op != "call_function" or next(_tensors(value), None) is not None
        known[node] = found.node_copy(node, known.__getitem__) if is_kept else value
        if is_kept:
            known[node].name = node.name  # which a copy has another of where Python has such a builtin: `input`
            known[node].meta.pop("tensor_meta", None)  # its shape has symbols
            known[node].meta["val"] = value
    return found


def _value(node: fx.Node, known: dict[fx.Node, Any], sizes: Sizes) -> Any:
    """Return the tensors without data that a node gives, or the number."""
    said = node.meta.get("val")
    if node.op == "placeholder":
        is_tensor = isinstance(said, torch.Tensor)
        return torch.empty(_shape(said, sizes), dtype=said.dtype) if is_tensor else said

    def value_of(operand: fx.Node) -> Any:
        value = known[operand]
        return value.meta["val"] if isinstance(value, fx.Node) else value

    args, kwargs = fx.map_arg((node.args, node.kwargs), value_of)
    value = node.target(*args, **kwargs)
    if [_shape(tensor, sizes) for tensor in _tensors(said)] != [list(tensor.shape) for tensor in _tensors(value)]:
        raise Declined(f"{node.name} has another shape")
    return value


def _shape(tensor: torch.Tensor, sizes: Sizes) -> list[int]:
    return [extent(formula(dim), sizes) for dim in tensor.shape]


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    return (leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor))
