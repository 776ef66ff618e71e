"""How long the memory behind the tensors of `main` is needed."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace

import tvm
from tvm import relax

from fusion.bindings import all_bindings, call_name


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


@dataclass(frozen=True)
class LiveRanges:
    """When memory is needed.

    Attributes:
        of: For each tensor that `relax.builtin.alloc_tensor` makes, when.
        conditions: Those of them that an If is decided on.
    """

    of: Mapping[relax.Var, LiveRange]
    conditions: Set[relax.Var]


def find_live_ranges(main: relax.Function) -> LiveRanges:
    """Return when the memory of `main`, which has no dataflow blocks, is needed."""
    reader = _Reader()
    reader.read_body(main.body, ())
    return LiveRanges(reader.ranges, reader.conditions)


@dataclass
class _Reader:
    """Reads bindings in the order of the text, those in branches too."""

    ranges: dict[relax.Var, LiveRange] = field(default_factory=dict, init=False)
    conditions: set[relax.Var] = field(default_factory=set, init=False)
    _memory: dict[relax.Var, frozenset[relax.Var]] = field(default_factory=dict, init=False)
    _position: int = field(default=0, init=False)

    def read_body(self, body: relax.SeqExpr, branches: tuple[tuple[int, bool], ...]) -> frozenset[relax.Var]:
        """Take in the bindings of `body`; return the allocations behind its result."""
        for binding in all_bindings(body):
            self._position += 1
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
        if call_name(value) == "builtin.alloc_tensor":
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
