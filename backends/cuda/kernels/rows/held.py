"""What a thread has of a row in registers: each run of neighbours is loaded where it is needed first, and once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tvm import tirx
from tvm.ir import TensorLoad, Var
from tvm_ffi import StructuralKey
from tvm_ffi.structural import StructuralMutator

from backends.cuda.kernels.registers import LaneLoads, copy_lanes, uses_any
from backends.tensorir.accesses import flat_index
from backends.tensorir.emit import Expr
from backends.tensorir.inlining import uses
from backends.tensorir.stages import dtype_of, shape_of, substitute
from fusion.structural import find


@dataclass
class HeldRow:
    """The registers of one thread.

    Attributes:
        elements: Of a row that a thread has.
        registers: All that there are; the caller allocates them before what uses them.
        held: Registers by what was loaded into them, over the variables of `Pass.names`.
    """

    elements: int
    registers: list[Var] = field(default_factory=list)
    held: dict[Any, Var] = field(default_factory=dict)

    def register(self, name: str, dtype: str, elements: int | None = None) -> Var:
        """Return new registers for what a thread has of a row, or for so many elements."""
        buffer = tirx.decl_buffer((elements or self.elements,), dtype, f"{name}_", scope="local")
        self.registers.append(buffer)
        return buffer


@dataclass
class Pass(LaneLoads):
    """One pass over what a thread has of a row, whose `lanes` are the neighbours of one chunk.

    Attributes:
        slot: Where in the registers the lane's element is.
        names: What the variables of this pass, of which each has its own, are called in all of them.
        runs: Where in memory the lanes' neighbours are of what a block brings as one run, by what kind of run it is.
        brought: What the caller has to bring so, before the pass: the kind, and the registers that take it.
    """

    row: HeldRow
    slot: Expr
    names: Mapping[Var, Expr]
    runs: Mapping[str, Expr]
    brought: list[tuple[str, Var, Var]] = field(default_factory=list)

    def _load(self, load: TensorLoad, mutator: StructuralMutator) -> Expr:
        is_known = load.source in self.row.registers or uses_any(load.indices, self.own)
        begin = None if is_known else self._begin(load)
        if begin is None:
            return load
        key = (load.source, *(StructuralKey(substitute(index, self.names)) for index in load.indices))
        if key not in self.row.held:
            kept = self.row.register(load.source.name, dtype_of(load.source))
            first = substitute(self.slot, {self.lanes.var: tirx.const(0, "int64")})
            analyzer = self.lanes.analyzer()
            run = next((kind for kind, at in self.runs.items() if analyzer.can_prove_equal(begin, at)), None)
            if run is None:
                copy_lanes(self.nest, kept, first, load.source, begin, many=self.lanes.many)
            else:
                self.brought.append((run, load.source, kept))
            self.row.held[key] = kept
        return tirx.BufferLoad(self.row.held[key], [self.slot])

    def _begin(self, load: TensorLoad) -> Expr | None:
        """Return where the run of a load begins, which may be one element; None where it is no run."""
        if self.lanes.many > 1 or not load.indices or find(list(load.indices), TensorLoad):
            return self.lanes.begin(load)
        flat = flat_index(shape_of(load.source), list(load.indices), self.lanes.analyzer())
        return flat if any(uses(flat, var) for var in self.names) else None
