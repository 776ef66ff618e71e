"""What the variables of `main` stand for, and how long the memory behind them is needed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import tvm
from tvm import relax


@dataclass(frozen=True)
class LiveRange:
    """Where in `main` a tensor is needed.

    Attributes:
        first, last: Positions of bindings, counted in the order of the text, through both branches of an If.
        branches: The branches around its allocation: the number of the If, and on which value of its condition.
    """

    first: int
    last: int
    branches: tuple[tuple[int, bool], ...]

    def meets(self, other: LiveRange) -> bool:
        """Return whether a run may need both at a time: never, if an If decides which of them there is."""
        sides = dict(other.branches)
        if any(sides.get(number, taken) != taken for number, taken in self.branches):
            return False
        return self.first <= other.last and other.first <= self.last


@dataclass
class Bindings:
    """All bindings of `main`, those in branches too.

    Attributes:
        values: What each variable is bound to.
        ranges: Of each tensor that `relax.builtin.alloc_tensor` makes.
        conditions: Those of them that an If is decided on.
    """

    values: dict[relax.Var, relax.Expr] = field(default_factory=dict)
    ranges: dict[relax.Var, LiveRange] = field(default_factory=dict)
    conditions: set[relax.Var] = field(default_factory=set)
    _memory: dict[relax.Var, frozenset[relax.Var]] = field(default_factory=dict)
    _position: int = 0

    def resolve(self, expr: relax.Expr) -> relax.Expr:
        """Follow aliases, and fields of tuples that are spelled out (kernels with several outputs make those)."""
        while isinstance(expr, relax.Var):
            value = self.values.get(expr)
            if isinstance(value, relax.TupleGetItem):
                whole = self.resolve(value.tuple_value)
                value = whole.fields[value.index] if isinstance(whole, relax.Tuple) else None
            if not isinstance(value, relax.Var | relax.Tuple):
                break
            expr = value
        return expr

    def root(self, expr: relax.Expr) -> relax.Expr:
        """Follow aliases and reshapes to the variable that owns the memory."""
        expr = self.resolve(expr)
        while isinstance(expr, relax.Var) and is_reshape(self.values.get(expr)):
            expr = self.resolve(self.values[expr].args[0])
        return expr

    def roots(self, result: relax.Expr) -> list[relax.Expr]:
        """Return the root of each output of `main`, which returns `result`."""
        result = self.resolve(result)
        return [self.root(item) for item in (result.fields if isinstance(result, relax.Tuple) else [result])]

    def read_body(self, body: relax.SeqExpr, branches: tuple[tuple[int, bool], ...]) -> frozenset[relax.Var]:
        """Take in the bindings of `body`; return the allocations behind its result."""
        for block in body.blocks:
            for binding in block.bindings:
                self._position += 1
                if isinstance(binding, relax.VarBinding):
                    self.values[binding.var] = binding.value
                self._memory[binding.var] = self._read(binding, branches)
        self._position += 1
        return self._use(body.body)

    def _read(self, binding: relax.Binding, branches: tuple[tuple[int, bool], ...]) -> frozenset[relax.Var]:
        """Return the allocations that the value may lie in."""
        value = binding.value
        if isinstance(value, relax.If):
            self.conditions |= self._use(value.cond)
            number = self._position
            then = self.read_body(value.true_branch, (*branches, (number, True)))
            return then | self.read_body(value.false_branch, (*branches, (number, False)))
        if is_operator(value, "relax.builtin.alloc_tensor"):
            self.ranges[binding.var] = LiveRange(self._position, self._position, branches)
            return frozenset({binding.var})
        used = self._use(value)
        writes_into_arguments = isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.GlobalVar)
        return frozenset() if writes_into_arguments else used

    def _use(self, expr: relax.Expr) -> frozenset[relax.Var]:
        """Note that `expr` is read here; return the allocations behind its variables."""
        variables = [expr] if isinstance(expr, relax.Var) else relax.analysis.free_vars(expr)
        used = frozenset().union(*(self._memory.get(var, frozenset()) for var in variables))
        for var in used:
            self.ranges[var] = replace(self.ranges[var], last=self._position)
        return used


def read_bindings(main: relax.Function) -> Bindings:
    """Return the bindings of `main`, which has no dataflow blocks."""
    bindings = Bindings()
    bindings.read_body(main.body, ())
    return bindings


def is_operator(value: relax.Expr | None, name: str) -> bool:
    """Return whether `value` is a call of the operator `name`."""
    return isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op) and str(value.op.name) == name


def is_extern(value: relax.Expr | None, name: str) -> bool:
    """Return whether `value` is a call of the packed function `name`."""
    return (
        isinstance(value, relax.Call)
        and isinstance(value.op, relax.ExternFunc)
        and str(value.op.global_symbol) == name
    )


def is_reshape(value: relax.Expr | None) -> bool:
    """Return whether `value` is a view of its first argument."""
    return is_operator(value, "relax.reshape") or is_extern(value, "vm.builtin.reshape")
