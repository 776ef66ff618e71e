"""What the threads of a kernel ask of each level of memory, counted on its loops, without running it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from math import prod
from typing import Any

from tvm import sym, tirx
from tvm.ir import Call, TensorLoad, Var

from backends.cuda.traffic import LaunchTraffic
from backends.tensorir.stages import item_bytes_of, shape_of, substitute
from fusion.structural import find

_NAME = re.compile(r"(\w+?)(?:<(\d+))?(?:[,>].*)?")
"""Of a function of `instructions.cuh`, and its first parameter."""
_FIXED_BYTES = {"load_matrices": 16, "load_transposed": 16, "take_word": 4, "put_word": 4}
"""What those move of one access that have no parameter of that."""
_RUNS = ("start_run", "bring_run")
"""Those that bring runs of memory."""
_ADDRESS = "tirx.address_of"
_PAST_L1 = 16
"""Bytes of the copies that L1 does not keep: `cp.async.cg`."""


def count_traffic(func: tirx.PrimFunc) -> LaunchTraffic:
    """Return what one launch asks for, whose loops are bound to blocks and threads.

    All statements behind conditions count, and each lane counts what others read too, so that bytes are the most that
    is asked for; a loop whose length depends on the block counts as that of the first one.
    """
    counter = _Counter()
    counter.visit(func.body, 1)
    return LaunchTraffic(counter.thread_bytes, counter.l2_bytes, counter.multiplies)


@dataclass
class _Counter:
    """Adds up accesses.

    Attributes:
        threads: Of a block, as far as its loop was met.
        first: What variables are in the first thread of the first block, in the first turn of each loop.
        analyzer: Simplifies extents with those.
    """

    thread_bytes: int = 0
    l2_bytes: int = 0
    multiplies: str = ""
    threads: int = 1
    first: dict[Var, Any] = field(default_factory=dict)
    analyzer: sym.Analyzer = field(default_factory=sym.Analyzer)

    def visit(self, statement: tirx.Stmt, times: int) -> None:
        """Count a statement that all threads together reach so many times."""
        if isinstance(statement, tirx.SeqStmt):
            for each in statement.seq:
                self.visit(each, times)
        elif isinstance(statement, tirx.For):
            extent = self._at_first(statement.extent)
            if statement.thread_binding is not None and statement.thread_binding.thread_tag == "threadIdx.x":
                self.threads = extent
            self.first[statement.loop_var] = tirx.const(0, "int64")
            self.visit(statement.body, times * extent)
        elif isinstance(statement, tirx.IfThenElse):
            self._count_loads(statement.condition, times)
            for case in (statement.then_case, statement.else_case):
                if case is not None:
                    self.visit(case, times)
        else:
            self._count(statement, times)

    def _count(self, statement: tirx.Stmt, times: int) -> None:
        if isinstance(statement, tirx.Bind):
            self.first[statement.var] = self.analyzer.simplify(substitute(statement.value, self.first))
        elif isinstance(statement, tirx.BufferStore):
            self._add(statement.buffer, item_bytes_of(statement.buffer) * times, stored=True)
        self._count_loads(statement, times)

    def _count_loads(self, part: Any, times: int) -> None:
        calls = find(part, Call)
        for call in calls:
            if call.op.name == "tirx.call_extern":
                self._count_function(call, times)
        addressed = [load for call in calls if call.op.name == _ADDRESS for load in call.args]
        for load in find(part, TensorLoad):
            if not any(load.same_as(each) for each in addressed):
                self._add(load.source, item_bytes_of(load.source) * times)

    def _count_function(self, call: Call, times: int) -> None:
        """Count a function of `instructions.cuh`: what it moves to or from each place in memory that it is given."""
        function, *arguments = call.args
        found = _NAME.fullmatch(str(function.value))
        assert found is not None
        name, parameter = found[1], int(found[2] or 0)
        if name.startswith("multiply_") and name != "multiply_floats":
            self.multiplies = name.removeprefix("multiply_")
        places = [
            load for each in arguments if isinstance(each, Call) and each.op.name == _ADDRESS for load in each.args
        ]
        if name in (*_RUNS, "store_run"):
            _, _, begin, end, *_ = arguments
            held = places[0].source
            has_own = str(held.scope()) == "shared"  # as long as the run is at most, which padding may cut short
            many = prod(shape_of(held)) if has_own else self._at_first(end - begin)
            size = many * parameter * times // self.threads
        elif name == "bring_vector":
            size = _PAST_L1 * times
        elif name.endswith("_elements"):
            item = next(item_bytes_of(each) for each in arguments if isinstance(each, Var) and _is_buffer(each))
            size = parameter * item * times
        else:
            size = _FIXED_BYTES.get(name, parameter * (4 if name.endswith("_floats") else 1)) * times
        for number, place in enumerate(places):
            past = name in _RUNS or name == "bring_vector" or (name == "copy_async" and parameter == _PAST_L1)
            writes = name.startswith(("put_", "store_")) and number == len(places) - 1
            self._add(place.source, size, stored=writes or past)

    def _add(self, buffer: Var, size: int, *, stored: bool = False) -> None:
        scope = str(buffer.scope())
        if scope == "global" or scope.startswith("shared"):
            self.thread_bytes += size
        if scope == "global" and stored:
            self.l2_bytes += size

    def _at_first(self, extent: Any) -> int:
        return int(self.analyzer.simplify(substitute(extent, self.first)))


def _is_buffer(var: Var) -> bool:
    return hasattr(var.ty, "shape")
