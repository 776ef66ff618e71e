"""Values of one thread in registers, and the accesses of 16 bytes that bring them there and away.

A thread has `lanes` neighbouring elements. What lies next to each other in memory is loaded at once, everything is
computed element by element, and stored at once: arithmetic never sees a vector.

    for lane in T.vectorized(4): x[lane] = a[at + lane]
    for lane in T.unroll(4): y[lane] = max(x[lane], 0.0)
    for lane in T.vectorized(4): b[at + lane] = y[lane]
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import tirx
from tvm.ir import Call, TensorLoad, Var
from tvm.sym import Analyzer
from tvm.tirx import ForKind
from tvm_ffi import StructuralKey
from tvm_ffi.structural import StructuralMutator

from backends.cuda.kernels.affine import analyzer_below
from backends.tensorir.accesses import flat_index
from backends.tensorir.emit import Expr, Nest, int64
from backends.tensorir.flat_buffers import load_flat, store_flat
from backends.tensorir.inlining import is_branch, uses
from backends.tensorir.stages import dtype_of, shape_of, substitute
from fusion.structural import find, mutate

ACCESS_BYTES = 16
"""The widest access of one thread: CUDA C++ programming guide, "Device memory accesses"."""


_VECTORS = frozenset(("float32", "float16", "bfloat16", "int32", "int64"))
"""Of bool, TVM writes vectors of two bytes an element (`ushort4`), which memory has not."""


def register(nest: Nest, name: str, elements: int, dtype: str) -> Var:
    """Declare numbers of one thread."""
    buffer = tirx.decl_buffer((elements,), dtype, name, scope="local")
    nest.add(tirx.AllocBuffer(buffer))
    return buffer


@dataclass(frozen=True)
class Lanes:
    """The neighbours that a thread computes.

    Attributes:
        var: Their index, below `many`: expressions are over it.
        ranges: Of the other variables of expressions.
    """

    var: Var
    many: int
    ranges: Sequence[tuple[Var, int]] = ()

    def analyzer(self) -> Analyzer:
        """Return an analyzer that knows the ranges."""
        return analyzer_below((*self.ranges, (self.var, self.many)))

    def begin(self, load: TensorLoad) -> Expr | None:
        """Return where in memory the first of them is, of neighbours that one access brings; None where none does."""
        looked_up = find(list(load.indices), TensorLoad)
        if self.many == 1 or not load.indices or any(uses(each, self.var) for each in looked_up):
            return None
        analyzer = self.analyzer()
        flat = flat_index(shape_of(load.source), list(load.indices), analyzer)
        first = analyzer.simplify(substitute(flat, {self.var: int64(0)}))
        is_run = analyzer.can_prove_equal(flat - first, self.var)
        is_aligned = analyzer.can_prove_equal(tirx.floormod(first, int64(self.many)), int64(0))
        return first if is_run and is_aligned else None


def uses_any(values: Sequence[Expr], variables: Collection[Var]) -> bool:
    """Return whether one of the variables occurs in one of the expressions."""
    return any(uses(value, var) for value in values for var in variables)


@dataclass
class LaneLoads(ABC):
    """Loads of what the lanes compute, each run of neighbours of which is brought into registers before the loop over
    lanes.

    Attributes:
        nest: Where these loads are added.
        own: Variables that each lane binds for itself, so that nothing can be loaded by them before.
    """

    nest: Nest
    lanes: Lanes
    own: set[Var] = field(default_factory=set, kw_only=True)

    def bind(self, bindings: Sequence[tuple[Var, Expr]]) -> list[tirx.Stmt]:
        """Return the bindings that stand in the loop over lanes, in their order. What is the same for all lanes is
        bound before that loop, where an access of all of them may lie by it."""
        inside: list[tirx.Stmt] = []
        for var, bound in bindings:
            value = self.take(bound)
            if uses_any([value], (self.lanes.var, *self.own)):
                self.own.add(var)
                inside.append(tirx.Bind(var, value))
            else:
                self.nest.add(tirx.Bind(var, value))
        return inside

    def take(self, value: Expr) -> Expr:
        """Return an expression that reads from registers what lies next to each other in memory.

        What stands in a branch stays there, as its loads may be out of bounds outside.
        """
        return mutate(value, [(TensorLoad, self._load), (Call, self._call)])

    @abstractmethod
    def _load(self, load: TensorLoad, mutator: StructuralMutator) -> Expr:
        """Return what is read in the place of a load."""

    def _call(self, call: Call, mutator: StructuralMutator) -> Expr:
        if not is_branch(call):
            return mutator.default_mutate(call)
        condition, then, otherwise = call.args
        return tirx.if_then_else(self.take(condition), then, otherwise)


@dataclass
class Loaded(LaneLoads):
    """What a thread has in registers: element `offset + lane` of each is that of the lane. What stands in a branch that
    all lanes take alike is loaded before it.

    Attributes:
        held: By the access that brought it.
    """

    held: dict[Any, Expr] = field(default_factory=dict)

    def _load(self, load: TensorLoad, mutator: StructuralMutator) -> Expr:
        if str(load.source.scope()) == "local":
            return load
        key = (load.source, *(StructuralKey(index) for index in load.indices))
        if key not in self.held:
            begin = None if uses_any(load.indices, self.own) else self.lanes.begin(load)
            if begin is None and (self.lanes.many == 1 or not self._is_known(load.indices)):
                return load
            if begin is None:
                self.held[key] = self._load_once(load)
                return self.held[key]
            kept = register(self.nest, f"{load.source.name}_", self.lanes.many, dtype_of(load.source))
            copy_lanes(self.nest, kept, int64(0), load.source, begin, many=self.lanes.many)
            self.held[key] = tirx.BufferLoad(kept, [self.lanes.var])
        return self.held[key]

    def _call(self, call: Call, mutator: StructuralMutator) -> Expr:
        if is_branch(call) and self._is_known(call.args[:1]):
            condition, then, otherwise = call.args
            return tirx.if_then_else(condition, self._take_where(condition, then), otherwise)
        return super()._call(call, mutator)

    def _is_known(self, values: Sequence[Expr]) -> bool:
        """Return whether values are the same for all lanes, and known before them."""
        ranges = [var for var, _ in self.lanes.ranges]
        return all(any(var.same_as(known) for known in ranges) for value in values for var in find(value, Var))

    def _load_once(self, load: TensorLoad) -> Expr:
        """Return one element that all lanes read."""
        kept = register(self.nest, f"{load.source.name}_", 1, dtype_of(load.source))
        self.nest.add(store_flat(kept, int64(0), load))
        return tirx.BufferLoad(kept, [int64(0)])

    def _take_where(self, condition: Expr, value: Expr) -> Expr:
        """Return what `take` returns of a branch, whose vectors are loaded where it is taken."""
        with self.nest.apart() as added:
            inner = Loaded(self.nest, self.lanes, dict(self.held), own=self.own)
            taken = inner.take(value)
        loads = [statement for statement in added if not isinstance(statement, tirx.AllocBuffer)]
        self.nest.extend(statement for statement in added if isinstance(statement, tirx.AllocBuffer))
        if loads:
            self.nest.add_when(condition, loads)
        return taken


def copy_lanes(nest: Nest, to: Var, at: Expr, source: Var, begin: Expr, *, many: int) -> None:
    """Add `to[at + lane] = source[begin + lane]`, one access; of types that TVM has no vectors of, one an element."""
    kind = ForKind.VECTORIZED if dtype_of(source) in _VECTORS else ForKind.UNROLLED
    with nest.run("lane", many, kind) as lane:
        nest.add(store_flat(to, at + lane, load_flat(source, begin + lane)))
