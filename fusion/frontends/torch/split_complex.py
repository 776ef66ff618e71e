"""Makes two real values of each complex one, where a decomposed program has any.

    view_as_complex(x) -> x[..., 0], x[..., 1];  view(complex(a, b)) -> view(a), view(b)
    view_as_real(complex(a, b)) -> where([True, False], a[..., None], b[..., None]), which kernels compute with a and b
    as they do not what is joined; one element of its last axis is a or b
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves, tree_map

from fusion.errors import UnsupportedOperatorError
from fusion.frontends.torch.refusals import unsupported

aten = torch.ops.aten

_HINT = "use torch.view_as_real and torch.view_as_complex in the module"
_NO_RULE = "there is no rule for its complex numbers"
_LINEAR = frozenset(
    {
        "alias", "cat", "clone", "copy", "cumsum", "detach", "expand", "flip", "gather", "index",
        "index_select", "mean", "neg", "permute", "repeat", "select", "select_scatter", "slice", "slice_scatter",
        "split_with_sizes", "squeeze", "stack", "sum", "t", "transpose", "unsqueeze", "view", "where",
    }
)  # fmt: skip
"""Operators that do to either part what they do to a real tensor."""
_INDEXED = frozenset(["gather", "index", "index_select"])
_MADE = frozenset(["full", "scalar_tensor"])
"""Operators that make a tensor of one number."""


@dataclass(frozen=True)
class _Pair:
    """The parts of a complex value: nodes of one shape and dtype."""

    real: fx.Node
    imag: fx.Node


@dataclass
class _Split:
    """The pass at work.

    Attributes:
        mode: That of the tensors without data that torch knows of each node.
        stacked: What `view_as_real` gives, of which parts may be taken without it.
    """

    graph: fx.Graph
    mode: Any
    pairs: dict[fx.Node, _Pair] = field(default_factory=dict)
    stacked: dict[fx.Node, _Pair] = field(default_factory=dict)

    def emit(self, at: fx.Node, op: Any, *args: Any, **kwargs: Any) -> fx.Node:
        """Return a node of `op` in front of `at`, its shape and dtype known."""
        with self.graph.inserting_before(at):
            new = self.graph.call_function(op, args, kwargs)
        new.meta = {key: at.meta[key] for key in ("stack_trace", "nn_module_stack") if key in at.meta}
        values, options = fx.map_arg((args, kwargs), lambda node: node.meta["val"])
        with self.mode:
            new.meta["val"] = op(*values, **options)
        return new

    def halves(self, at: fx.Node, pairs: fx.Node) -> _Pair:
        """Return the parts that lie along the last axis of `pairs`."""
        last = pairs.meta["val"].ndim - 1
        return _Pair(*(self.emit(at, aten.select.int, pairs, last, index) for index in (0, 1)))

    def part(self, node: fx.Node, value: Any, *, imag: bool) -> Any:
        """Return a part of what an operator of complex numbers takes, 0 for the imaginary one of a real tensor; indices
        and conditions are what they are."""
        if isinstance(value, complex):
            return value.imag if imag else value.real
        if isinstance(value, torch.dtype):
            return value.to_real()
        if not isinstance(value, fx.Node):
            return value
        if value in self.pairs:
            return self.pairs[value].imag if imag else self.pairs[value].real
        selects = _name(node) in _INDEXED or (_name(node) == "where" and value is node.args[0])
        if imag and not selects:
            found = value.meta["val"]
            return self.emit(node, aten.full.default, list(found.shape), 0, dtype=found.dtype)
        return value

    def as_pair(self, node: fx.Node) -> _Pair | None:
        """Return the parts of what a complex node gives; None where there is no rule for it."""
        if node.target is aten.view_as_complex.default:
            return self.stacked.get(node.args[0]) or self.halves(node, node.args[0])
        if node.target is aten.complex.default:
            size = list(node.meta["val"].shape)
            return _Pair(*(self.emit(node, aten.expand.default, part, size) for part in node.args))
        name = _name(node)
        if name in ("_conj", "conj_physical", "_conj_physical"):
            (pair,) = (self.pairs[operand] for operand in node.args)
            return _Pair(pair.real, self.emit(node, aten.neg.default, pair.imag))
        if name == "_to_copy":
            return self.converted(node)
        is_padded = name == "constant_pad_nd" and not any(node.args[2:])
        if node.target is operator.getitem or name in _LINEAR or is_padded:
            return _Pair(*(self.applied(node, imag=imag) for imag in (False, True)))
        if name in _MADE:
            number = complex(node.args[-1])
            kwargs = {**node.kwargs, "dtype": node.meta["val"].dtype.to_real()}
            fills = (number.real, number.imag)
            return _Pair(*(self.emit(node, node.target, *node.args[:-1], fill, **kwargs) for fill in fills))
        return None

    def applied(self, node: fx.Node, *, imag: bool) -> fx.Node:
        """Return the operator of `node` with a part of each operand. What a complex value lies as in memory does not
        say how its parts do, which a view may not be of."""
        args, kwargs = tree_map(lambda value: self.part(node, value, imag=imag), (node.args, dict(node.kwargs)))
        op = aten.reshape.default if node.target is aten.view.default else node.target
        return self.emit(node, op, *args, **kwargs)

    def converted(self, node: fx.Node) -> _Pair:
        """Return a value in another complex dtype, or a real one in a complex one."""
        dtype = node.meta["val"].dtype.to_real()
        parts = (self.part(node, node.args[0], imag=imag) for imag in (False, True))
        return _Pair(*(self.emit(node, aten._to_copy.default, part, dtype=dtype) for part in parts))

    def as_real(self, node: fx.Node) -> fx.Node | None:
        """Return what has the place of a node that gives real numbers; None where there is no rule for it."""
        if node.target is aten.select.int and node.args[0] in self.stacked:
            pairs, axis, index = node.args
            pair = self.stacked[pairs]
            if axis in (-1, pairs.meta["val"].ndim - 1):
                return pair.imag if index in (1, -1) else pair.real
            return node
        if node.target is aten.view_as_real.default:
            pair = self.pairs[node.args[0]]
            last = node.meta["val"].ndim - 1
            parts = (self.emit(node, aten.unsqueeze.default, part, last) for part in (pair.real, pair.imag))
            is_real = self.emit(node, aten.eq.Scalar, self.emit(node, aten.arange.default, 2), 0)
            made = self.emit(node, aten.where.self, is_real, *parts)
            self.stacked[made] = pair
            return made
        if not any(operand in self.pairs for operand in node.all_input_nodes):
            return node
        if _name(node) == "_to_copy":
            return self.emit(node, aten._to_copy.default, self.pairs[node.args[0]].real, dtype=node.kwargs["dtype"])
        return None


def split_complex(program: Any) -> None:
    """Rewrite `program`, whose complex weights are pairs along a last axis from here on.

    Raises:
        UnsupportedOperatorError: It takes or returns complex numbers, or an operator of them has no rule.
    """
    nodes = list(program.graph.nodes)
    if not any(_is_complex(node) for node in nodes):
        return
    known = [leaf for node in nodes for leaf in tree_leaves(node.meta.get("val")) if isinstance(leaf, FakeTensor)]
    split = _Split(program.graph, known[0].fake_mode)
    given = {spec.arg.name for spec in program.graph_signature.input_specs if spec.kind.name == "USER_INPUT"}
    first = next(node for node in nodes if node.op != "placeholder")
    for node in nodes:
        if node.op == "placeholder" and _is_complex(node):
            if node.name in given:
                raise _at_the_boundary(f"the input {node.name!r} is complex")
            with split.mode:
                node.meta["val"] = torch.view_as_real(node.meta["val"])
            split.pairs[node] = split.halves(first, node)
        elif node.op == "call_function":
            _replace(split, node)
    if any(value in split.pairs for value in program.graph.output_node().all_input_nodes):
        raise _at_the_boundary("an output is complex")
    program.graph.eliminate_dead_code()


def _replace(split: _Split, node: fx.Node) -> None:
    """Note the parts of a complex node; have another in the place of one that takes complex numbers."""
    if _is_complex(node):
        pair = split.as_pair(node)
        if pair is None or not all(_is_part(part, node) for part in (pair.real, pair.imag)):
            raise unsupported(node, _NO_RULE, _HINT)
        split.pairs[node] = pair
        return
    made = split.as_real(node)
    if made is not None and made is not node:
        node.replace_all_uses_with(made)
    elif made is None and node.users:
        raise unsupported(node, _NO_RULE, _HINT)
    elif made is None:  # a check of torch's
        split.graph.erase_node(node)


def _is_part(part: fx.Node, node: fx.Node) -> bool:
    """Return whether shape and dtype are those of a part of `node`."""
    found, whole = part.meta["val"], node.meta["val"]
    if not isinstance(whole, torch.Tensor):
        return True
    return bool(found.shape == whole.shape and found.dtype == whole.dtype.to_real())


def _is_complex(node: fx.Node) -> bool:
    return any(isinstance(leaf, torch.Tensor) and leaf.is_complex() for leaf in tree_leaves(node.meta.get("val")))


def _name(node: fx.Node) -> str:
    return str(node.target._schema.name.partition("::")[2]) if isinstance(node.target, torch._ops.OpOverload) else ""


def _at_the_boundary(what: str) -> UnsupportedOperatorError:
    return UnsupportedOperatorError(
        what,
        why="a compiled module takes and returns real numbers",
        hint="have the module take torch.view_as_complex of what it is given, and return torch.view_as_real",
    )
