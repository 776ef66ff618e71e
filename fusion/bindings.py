"""The view of a Relax function that all passes share: its bindings in order, and the readers of each variable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import tvm
from tvm import relax


@dataclass(frozen=True, eq=False)
class Bindings:
    """The bindings of a function, or of a branch of an If.

    Attributes:
        all: The bindings, in the order of execution. A `MatchCast` also defines the symbols in its type.
        result: The expression that is returned.
    """

    all: tuple[relax.Binding, ...]
    result: relax.Expr

    @classmethod
    def of(cls, func: relax.Function | relax.SeqExpr, *, branches: bool = False) -> Bindings:
        """Return the bindings of a function, or of a body; with `branches` also those inside each If, before that of
        the If."""
        body = func.body if isinstance(func, relax.Function) else func
        return cls(tuple(_inside(body) if branches else all_bindings(body)), body.body)

    @cached_property
    def values(self) -> Mapping[relax.Var, relax.Expr]:
        """The expression that each variable is bound to."""
        return {binding.var: binding.value for binding in self.all}

    @cached_property
    def readers(self) -> Mapping[relax.Var, Sequence[relax.Var]]:
        """For each variable, the variables whose expressions read it, once for each time they do."""
        found: dict[relax.Var, list[relax.Var]] = {binding.var: [] for binding in self.all}
        for binding in self.all:
            for read in variables(binding.value):
                found.setdefault(read, []).append(binding.var)
        return found

    @cached_property
    def returned(self) -> frozenset[relax.Var]:
        """The variables that the result reads."""
        return frozenset(variables(self.result))

    @cached_property
    def _casts(self) -> frozenset[relax.Var]:
        return frozenset(binding.var for binding in self.all if isinstance(binding, relax.MatchCast))

    def resolve(self, expr: relax.Expr) -> relax.Expr:
        """Follow aliases, and items of tuples that are built in the function, as kernels with several outputs do. A
        `MatchCast` is no alias."""
        while isinstance(expr, relax.Var) and expr not in self._casts:
            value = self.values.get(expr)
            if isinstance(value, relax.TupleGetItem):
                whole = self.resolve(value.tuple_value)
                value = whole.fields[value.index] if isinstance(whole, relax.Tuple) else None
            if not isinstance(value, relax.Var | relax.Tuple):
                break
            expr = value
        return expr

    def results(self) -> list[relax.Expr]:
        """Return the results, without aliases: the fields of the tuple that is returned, or the only result."""
        result = self.resolve(self.result)
        return [self.resolve(field) for field in (result.fields if isinstance(result, relax.Tuple) else [result])]


def all_bindings(body: relax.SeqExpr) -> Iterator[relax.Binding]:
    """Yield the bindings of `body` in order."""
    for block in body.blocks[:]:  # as a list: an iterator over an array of TVM's takes twice as long
        yield from block.bindings[:]


def _inside(body: relax.SeqExpr) -> Iterator[relax.Binding]:
    for binding in all_bindings(body):
        if isinstance(binding.value, relax.If):
            yield from _inside(binding.value.true_branch)
            yield from _inside(binding.value.false_branch)
        yield binding


def variables(expr: relax.Expr) -> Iterator[relax.Var]:
    """Yield the variables that `expr` reads, once for each time it does."""
    if isinstance(expr, relax.Var) and not isinstance(expr, relax.GlobalVar):
        yield expr
    elif isinstance(expr, relax.Tuple):
        for item in expr.fields:
            yield from variables(item)
    elif isinstance(expr, relax.TupleGetItem):
        yield from variables(expr.tuple_value)
    elif isinstance(expr, relax.Call):
        for arg in expr.args[:]:  # as in `all_bindings`
            yield from variables(arg)


def call_name(expr: relax.Expr | None) -> str:
    """Return the name of the operator that `expr` calls, without "relax."; "" for anything else."""
    if isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op):
        return str(expr.op.name).removeprefix("relax.")
    return ""


def data_of(call: relax.Call) -> relax.Expr:
    """Return the first operand, the tensor that an operator works on."""
    return call.args[0]


def operand(call: relax.Call, name: str) -> relax.Expr:
    """Return the operand that TVM's definition of the operator calls `name`."""
    return call.args[_places(call_name(call))[name]]


@cache
def _places(operator: str) -> Mapping[str, int]:
    arguments = tvm.ir.Op.get(f"relax.{operator}").arguments
    return {str(argument.name): place for place, argument in enumerate(arguments)}


def is_call_tir(value: relax.Expr) -> bool:
    """Return whether `value` is `R.call_tir` of a PrimFunc of the module."""
    return call_name(value) == "call_tir"


def callee(call: relax.Call) -> relax.Expr:
    """Return the function that a `call_tir`, `call_tir_inplace` or call of a packed function calls."""
    return call.args[0]


def call_arguments(call: relax.Call) -> list[relax.Expr]:
    """Return the tensors that a `call_tir` or `call_tir_inplace` reads."""
    given = call.args[1]
    return list(given.fields) if isinstance(given, relax.Tuple) else [given]
