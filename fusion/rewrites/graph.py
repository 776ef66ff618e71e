"""The graph that rules rewrite, with the operands and readers of each value: read from Relax once, and written once.

A Relax pass that rebinds everything pays for type inference (50 us a call); here, what no rule touched keeps its
binding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax
from tvm.ir import GenericConst

from fusion.bindings import Bindings, call_name
from fusion.constants import constant
from fusion.declined import Declined
from fusion.shapes import known_shape
from fusion.tensors import as_numpy

Array = npt.NDArray[Any]
CONSTANT, NARROW = "constant", ("float16", "bfloat16")


@dataclass(eq=False)
class Value:
    """A value of the graph: a tensor, or another kind of operand (a tuple, a shape).

    Attributes:
        op: The operator that computes it, without "relax."; CONSTANT; "tuple", "get" (an item of a tuple) or "alias";
            "" for parameters, and operands that rules do not look into.
        args: Its operands.
        expr: The expression by which others refer to it: a variable, a constant, or the operand itself.
        bound: The expression that the variable is bound to.
        readers: The values that read it, and how often each does.
        changed: Whether an operand was replaced, so that its binding has to be written anew.
    """

    op: str
    args: tuple[Value, ...]
    expr: relax.Expr
    bound: relax.Expr
    readers: Counter[Value] = field(default_factory=Counter)
    changed: bool = False

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The extents of a tensor whose shape is known, else ()."""
        return self._extents or ()

    @property
    def is_known(self) -> bool:
        """Whether it is a tensor of static shape, or no tensor."""
        return self._extents is not None

    @cached_property
    def _extents(self) -> tuple[int, ...] | None:
        return known_shape(self.expr) if isinstance(self.expr.ty, relax.TensorType) else ()

    @cached_property
    def dtype(self) -> str:
        """The name of a tensor's dtype, "" for anything else."""
        return str(self.expr.ty.dtype.dtype) if isinstance(self.expr.ty, relax.TensorType) else ""

    @cached_property
    def array(self) -> Array:
        """The elements of a constant."""
        return as_numpy(self.expr.value)

    @cached_property
    def number(self) -> float | None:
        """The element of a float32 or float64 constant of size 1; None for anything else."""
        return float(self.array.reshape(())) if self.is_weight and self.array.size == 1 else None

    @cached_property
    def is_weight(self) -> bool:
        """Whether it is a constant of float32 or float64."""
        return self.op == CONSTANT and self.dtype in ("float32", "float64")

    @cached_property
    def is_narrow(self) -> bool:
        """Whether it is a constant of float16 or bfloat16."""
        return self.op == CONSTANT and self.dtype in NARROW

    @property
    def data(self) -> Value:
        """The first operand: the tensor that the operator works on."""
        return self.args[0]

    @property
    def weight(self) -> Value:
        """The second operand of a matmul, a convolution or a normalisation: its weights, whether they are constant or
        not."""
        return self.args[1]

    @property
    def reads(self) -> int:
        """How often it is read."""
        return sum(self.readers.values())

    @property
    def attrs(self) -> Any:
        """The attributes of the call that computes it."""
        return self.bound.attrs


class Proposal(NamedTuple):
    """What a rule would do to the graph.

    Attributes:
        new: The values that it adds.
        result: The value that takes the place of the root.
        known: Whether the result is a value that the graph has already.
    """

    new: list[Value]
    result: Value
    known: bool


class Emit:
    """Records what a rule emits. It becomes part of the graph only if the rewrite is found to pay."""

    def __init__(self, graph: RewriteGraph) -> None:
        self._graph = graph
        self.made: list[tuple[relax.Var, relax.Expr]] = []

    def __call__(self, expr: relax.Expr) -> relax.Var:
        """Return a variable bound to `expr`."""
        bound = self.normal(expr)
        var = relax.DataflowVar(self._graph.new_name(), bound.ty)
        self.made.append((var, bound))
        return var

    def normal(self, expr: relax.Expr) -> relax.Expr:
        """Return `expr` normalised, with its type inferred."""
        return self._graph.builder.normalize(expr)

    def weight(self, weight: Value, factor: Array) -> relax.Expr:
        """Return a constant times `factor`, rounded once; layers that share both share the result.

        Raises:
            Declined: The product overflows, or is too small for narrow numbers.
        """
        key = (weight.expr, factor.shape, factor.tobytes())
        known = self._graph.weights.get(key)
        if known is None:
            with np.errstate(over="ignore", invalid="ignore"):
                scaled = _scaled(weight, factor)
            if not np.isfinite(scaled).all():
                raise Declined("weights would overflow")
            known = self._graph.weights[key] = constant(scaled)
        return known


def _scaled(weight: Value, factor: Array) -> Array:
    """Return weights times `factor`.

    Raises:
        Declined: Narrow ones lose more together than their type rounds by: some are too small for its exponent.
    """
    scaled: Array
    if not weight.is_narrow:
        scaled = weight.array * factor.astype(weight.dtype)
        return scaled
    wide = weight.array.astype(np.float64) * factor
    scaled = wide.astype(weight.array.dtype)
    lost, unit = np.linalg.norm(scaled.astype(np.float64) - wide), float(ml_dtypes.finfo(scaled.dtype).eps) / 2
    if np.isfinite(lost) and lost > unit * np.linalg.norm(wide):
        raise Declined("weights would lose digits")
    return scaled


class RewriteGraph:
    """The bindings of `main`, a single dataflow block."""

    def __init__(self, main: relax.Function) -> None:
        self.builder = relax.BlockBuilder()
        self.weights: dict[tuple[relax.Expr, tuple[int, ...], bytes], relax.Expr] = {}
        self._main = main
        self._names = 0
        self._of: dict[relax.Var, Value] = {var: Value("", (), var, var) for var in main.params}
        self._bindings = Bindings.of(main)
        self.values = [self._read(binding.var, binding.value) for binding in self._bindings.all]
        self._before: dict[Value, list[Value]] = {}
        result = self._bindings.result
        self._outside = Value("", (self._operand(result),), result, result)
        self._link(self._outside)
        for binding, value in zip(self._bindings.all, self.values, strict=True):
            self._link(value)
            if isinstance(binding, relax.MatchCast):  # it defines the extents that later shapes name
                value.readers[self._outside] += 1
        for value in reversed(self.values):
            if not value.readers:
                old, value.args = value.args, ()
                self._drop(value, old)

    def new_name(self) -> str:
        """Return a name for a new variable, which no imported graph has."""
        self._names += 1
        return f"rewritten_{self._names}"

    def proposed(self, emit: Emit, result: relax.Expr) -> Proposal:
        """Return what a rule emitted as values, which nothing reads yet."""
        known = isinstance(result, relax.Var) and result in self._of
        made = [self._read(var, expr) for var, expr in emit.made]
        if not isinstance(result, relax.Var):
            return Proposal(made, Value(*self._parts(result), result, result), known)
        value = self._of[result]
        return Proposal([each for each in made if each is not value], value, known)

    def forget(self, emit: Emit) -> None:
        """Discard what a rule emitted."""
        for var, _ in emit.made:
            del self._of[var]

    def dying(self, root: Value, kept: set[Value]) -> set[Value]:
        """Return the values that become dead, `root` included, when `root` is computed in another way, from `kept`."""
        dead, waiting = {root}, list(root.args)
        while waiting:
            value = waiting.pop()
            if value not in dead and value not in kept and value.args and value.readers.keys() <= dead:
                dead.add(value)
                waiting.extend(value.args)
        return dead

    def replace(self, root: Value, proposal: Proposal) -> list[Value]:
        """Compute `root` as proposed; return the values whose surroundings changed, on which rules may match anew."""
        for value in proposal.new:
            self._link(value)
        self._before.setdefault(root, []).extend(proposal.new)
        old, result = root.args, proposal.result
        if not proposal.known:
            root.op, root.args, root.bound, root.changed = result.op, result.args, result.bound, False
            self._of.pop(result.expr, None)
            self._link(root)
            near = list(root.readers)
        else:
            near = self._forward(root, result)
        return [*proposal.new, root, *near, *self._drop(root, old)]

    def write(self, mod: tvm.IRModule) -> tvm.IRModule:
        """Return `mod` with this graph as its `main`."""
        written: list[relax.Binding] = []
        for binding, value in zip(self._bindings.all, self.values, strict=True):
            for each in self._in_order(value):
                if each.readers:
                    written.append(self._binding(each, binding if each is value else None))
        main = self._main
        body = relax.SeqExpr([relax.DataflowBlock(written)], self._named(self._outside.data))
        result = mod.clone()
        result["main"] = relax.Function(list(main.params), body, main.ret_ty, main.is_pure, main.attrs)
        return relax.transform.Normalize()(result)

    def _binding(self, value: Value, old: relax.Binding | None) -> relax.Binding:
        if isinstance(old, relax.MatchCast):
            return relax.MatchCast(old.var, self._bound(value), old.ty) if value.changed else old
        same = old is not None and not value.changed and old.value is value.bound
        return old if same else relax.VarBinding(value.expr, self._bound(value))

    def _in_order(self, value: Value) -> Iterator[Value]:
        for each in self._before.get(value, ()):
            yield from self._in_order(each)
        yield value

    def _bound(self, value: Value) -> relax.Expr:
        if not value.changed:
            return value.bound
        operands = [self._named(arg) for arg in value.args]
        if value.op == "alias":
            return operands[0]
        if value.op == "tuple":
            made = relax.Tuple(operands)
        elif value.op == "get":
            made = relax.TupleGetItem(operands[0], value.bound.index)
        else:
            old = value.bound
            made = relax.Call(old.op, operands, old.attrs, old.ty_args)
        return self.builder.normalize(made)

    def _named(self, value: Value) -> relax.Expr:
        return self._bound(value) if value.changed and not isinstance(value.expr, relax.Var) else value.expr

    def _forward(self, root: Value, target: Value) -> list[Value]:
        """Make the readers of `root` read `target`; if `main` returns `root`, that becomes an alias."""
        root.op, root.changed = "alias", True
        if not isinstance(root.expr, relax.DataflowVar):
            root.args = (target,)
            self._link(root)
            return []
        root.args, readers = (), list(root.readers)
        for reader in readers:
            reader.args = tuple(target if arg is root else arg for arg in reader.args)
            target.readers[reader] += root.readers.pop(reader)
            self._mark(reader)
        return readers

    def _mark(self, reader: Value) -> None:
        reader.changed = True
        if not isinstance(reader.expr, relax.Var):  # a tuple among the operands of a call
            for outer in reader.readers:
                outer.changed = True

    def _link(self, value: Value) -> None:
        for arg in value.args:
            arg.readers[value] += 1
            if arg.op == "tuple" and not isinstance(arg.expr, relax.Var) and len(arg.readers) == 1:
                self._link(arg)

    def _drop(self, value: Value, args: tuple[Value, ...]) -> list[Value]:
        """Remove `value` from the readers of `args`, and what dies with that; return the values that are now the only
        readers of one of them."""
        alone: list[Value] = []
        dropped = [(value, arg) for arg in args]
        while dropped:
            reader, arg = dropped.pop()
            arg.readers[reader] -= 1
            if not arg.readers[reader]:
                del arg.readers[reader]
            if not arg.readers:
                dropped += [(arg, operand) for operand in arg.args]
                arg.args = ()
            elif len(arg.readers) == 1:
                alone += arg.readers
        return alone

    def _read(self, var: relax.Var, bound: relax.Expr) -> Value:
        value = self._of[var] = Value(*self._parts(bound), var, bound)
        return value

    def _parts(self, bound: relax.Expr) -> tuple[str, tuple[Value, ...]]:
        if isinstance(bound, relax.Call):
            return call_name(bound), tuple(self._operand(arg) for arg in bound.args)
        if isinstance(bound, relax.TupleGetItem):
            return "get", (self._operand(bound.tuple_value),)
        if isinstance(bound, relax.Tuple):
            return "tuple", tuple(self._operand(item) for item in bound.fields)
        return "alias", (self._operand(bound),)

    def _operand(self, expr: relax.Expr) -> Value:
        if isinstance(expr, relax.Var):
            return self._of[expr]
        if isinstance(expr, GenericConst):
            return Value(CONSTANT, (), expr, expr)
        if isinstance(expr, relax.Tuple):
            return Value("tuple", tuple(self._operand(item) for item in expr.fields), expr, expr)
        return Value("", (), expr, expr)
