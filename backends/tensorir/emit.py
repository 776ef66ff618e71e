"""A small builder for loop nests in TensorIR.

Templates emit their loops instead of deriving them by schedule primitives. So edges get bodies of their own in place of
predicates (TVM turns a predicated vector store into scalar code), and a kernel is emitted in milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tvm import tirx
from tvm.ir import StringImm
from tvm.sym import Analyzer
from tvm.tirx import ForKind

MASKED = "fusion.masked"
"""Attribute around statements with idle lanes; its value is the number of active ones."""

IMPORT = "pragma_import_llvm"
"""TVM's attribute around statements that call functions in LLVM's language, which is its value."""

FUNCTIONS = "fusion.functions"
"""Attribute around statements that call functions of which each has code of its own; its value is their text in LLVM's
language."""

FINISHED = "fusion.finished_functions"
"""The same, whose text is as they are to run."""

Expr = Any  # a TensorIR expression or a Python number


class Nest:
    """A loop nest under construction: statements are added in order to the innermost open body."""

    def __init__(self) -> None:
        self._open: list[list[tirx.Stmt]] = [[]]
        self._functions: dict[tuple[str, str], None] = {}

    def add(self, statement: tirx.Stmt) -> None:
        self._open[-1].append(statement)

    def extend(self, statements: Iterable[tirx.Stmt]) -> None:
        for statement in statements:
            self.add(statement)

    def store(self, buffer: tirx.Buffer, indices: Sequence[Expr], value: Expr) -> None:
        self.add(tirx.BufferStore(buffer, value, list(indices)))

    def allocate(self, name: str, shape: Sequence[int], dtype: str = "float32") -> tirx.Buffer:
        """Declare a buffer that lives to the end of the enclosing loop body.

        TVM puts buffers of the "global" scope below 1 KiB on the stack, where LLVM turns them into registers; all
        others, those of the "local" scope included, it takes from a pool at run time.
        """
        buffer = tirx.decl_buffer(tuple(shape), dtype, name, scope="global")
        self.add(tirx.AllocBuffer(buffer))
        return buffer

    def bind(self, name: str, value: Expr) -> tirx.Var:
        """Name a value for the rest of the enclosing loop body."""
        var = tirx.Var(name, value.ty)
        self.add(tirx.Bind(var, value))
        return var

    def settle(self, name: str, value: Expr) -> tirx.Var:
        """Name a value that is computed here, once. (TVM's simplifier substitutes what `bind` names at each use.)"""
        return self.bind(name, self.keep(name, value))

    def keep(self, name: str, value: Expr) -> tirx.BufferLoad:
        """Return `value`, computed here, as the element of a buffer, which LLVM keeps in a register: TVM's simplifier
        puts even what variables load in their places everywhere, and took 20 s for an attention whose indices are all
        of symbols."""
        kept = self.allocate(name, (1,), str(value.ty.dtype))
        self.store(kept, [int64(0)], value)
        return tirx.BufferLoad(kept, [int64(0)])

    @contextmanager
    def apart(self) -> Iterator[list[tirx.Stmt]]:
        """Open a list of statements, which the caller will add where they belong."""
        self._open.append([])
        yield self._open[-1]
        self._open.pop()

    @contextmanager
    def run(self, name: str, extent: Expr, kind: ForKind = ForKind.SERIAL, begin: Expr = 0) -> Iterator[tirx.Var]:
        """Open a loop over [begin, begin + extent) that yields a variable in any case, as analyzers know ranges of
        variables. A single iteration becomes its body, after a variable with the value `begin`."""
        if isinstance(extent, int) and extent == 1:
            yield self.bind(name, int64(begin))
            return
        var = tirx.Var(name, "int64")
        with self.apart() as body:
            yield var
        self.add_loop(var, extent, kind, body, begin)

    @contextmanager
    def loop(self, name: str, extent: Expr, kind: ForKind = ForKind.SERIAL) -> Iterator[Expr]:
        """Open a loop over [0, extent). A single iteration becomes its body, with index 0."""
        var = tirx.Var(name, "int64")
        is_single = isinstance(extent, int) and extent == 1 and kind is not ForKind.PARALLEL
        with self.apart() as body:
            yield int64(0) if is_single else var
        if is_single and not _allocates(body):
            self.extend(body)
        else:
            self.add_loop(var, extent, kind, body)

    def add_loop(self, var: tirx.Var, extent: Expr, kind: ForKind, body: list[tirx.Stmt], begin: Expr = 0) -> None:
        self.add(tirx.For(var, int64(begin), int64(extent), kind, _sequence(body)))

    @contextmanager
    def when(self, condition: Expr) -> Iterator[None]:
        """Open the body of an `if`."""
        with self.apart() as body:
            yield
        self.add_when(condition, body)

    def add_when(self, condition: Expr, body: list[tirx.Stmt]) -> None:
        self.add(tirx.IfThenElse(condition, _sequence(body), None))

    @contextmanager
    def masked(self, active: Expr) -> Iterator[None]:
        """Open statements of whose vectors only the first `active` lanes are loaded and stored: see `codegen/masks.py`.

        What a loop over lanes stores there is contiguous, what it loads too, or the same for all lanes, or at places
        apart (slow); at least one lane is active then. Nothing is of a size that is known before the call, but for
        registers.
        """
        with self.apart() as body:
            yield
        self.add(tirx.AttrStmt(int64(0), MASKED, active, _sequence(body)))

    def choose(self, condition: Expr, then: Callable[[], None], otherwise: Callable[[], None]) -> None:
        """Add an `if` of what two functions add."""
        with self.apart() as first:
            then()
        with self.apart() as second:
            otherwise()
        self.add(tirx.IfThenElse(condition, _sequence(first), _sequence(second)))

    def use_functions(self, llvm_ir: str) -> None:
        """Let the statements call functions that are written in LLVM's own language; LLVM puts them in line."""
        self._functions[IMPORT, llvm_ir] = None

    def call_functions(self, llvm_ir: str, *, finished: bool = False) -> None:
        """Let the statements call functions that are written in LLVM's own language and compiled once for all kernels
        that call them: see `codegen/functions.py`. Their names say all that their text depends on, and they return an
        int32 that nothing reads. A text of one function that is `finished` is not given to LLVM's optimiser."""
        self._functions[FINISHED if finished else FUNCTIONS, llvm_ir] = None

    def finish(self) -> tirx.Stmt:
        """Return everything added as one statement."""
        body = _sequence(self._open.pop())
        for key, text in self._functions:
            body = tirx.AttrStmt(int64(0), key, StringImm(text), body)
        return body


def ramp(base: Expr, lanes: int) -> Expr:
    """Return the indices base, base+1, … of a contiguous vector."""
    return tirx.Ramp(int64(base), int64(1), lanes) if lanes > 1 else base


def splat(value: Expr, lanes: int) -> Expr:
    """Return `value` in every lane."""
    return tirx.Broadcast(value, lanes) if lanes > 1 else value


def pieces(extent: int, lanes: int) -> list[tuple[int, int]]:
    """Return (offset, lanes) of the vectors that cover `extent`: full ones, then powers of two for the rest."""
    found = []
    offset = 0
    while offset < extent:
        while lanes > extent - offset:
            lanes //= 2
        found.append((offset, lanes))
        offset += lanes
    return found


def int64(value: Expr) -> Expr:
    """Return a Python number as a constant; expressions as they are."""
    return tirx.const(value, "int64") if isinstance(value, int) else value


@contextmanager
def guard(nest: Nest, condition: Expr | None) -> Iterator[None]:
    """Open an `if`, or nothing where there is no condition."""
    if condition is None:
        yield
        return
    with nest.when(condition):
        yield


def prefetch(nest: Nest, load: tirx.BufferLoad, *, writes: bool = False) -> None:
    """Ask for the cache line of `load` ahead of its use, which may be a store; addresses past the end of a buffer are
    harmless."""
    use, keep, data = (tirx.const(flag, "int32") for flag in (int(writes), 3, 1))
    nest.add(tirx.Evaluate(tirx.call_llvm_intrin("void", "llvm.prefetch", tirx.address_of(load), use, keep, data)))


def vector_runs(nest: Nest, size: Expr, lanes: int) -> Iterator[tuple[Expr, int]]:
    """Yield (offset, lanes) inside a loop over whole vectors, then for each piece of the rest; where only a call knows
    the size, the last vector begins so much earlier that it is whole, or there are single elements."""
    if not isinstance(size, int):
        yield from _open_runs(nest, size, lanes)
        return
    whole = size // lanes
    if whole:
        with nest.loop("v", whole) as v:
            yield v * lanes, lanes
    for at, count in pieces(size - whole * lanes, lanes):
        yield whole * lanes + at, count


def _open_runs(nest: Nest, size: Expr, lanes: int) -> Iterator[tuple[Expr, int]]:
    many = Analyzer().simplify(tirx.floordiv(size, lanes))
    if Analyzer().can_prove_equal(many * lanes, size):
        with nest.loop("v", many) as v:
            yield v * lanes, lanes
        return
    with nest.when(size >= lanes), nest.loop("v", tirx.truncdiv(size + (lanes - 1), int64(lanes))) as v:
        yield tirx.min(v * lanes, size - lanes), lanes
    with nest.when(size < lanes), nest.loop("v", size) as v:
        yield v, 1


def _allocates(statements: list[tirx.Stmt]) -> bool:
    return any(isinstance(statement, tirx.AllocBuffer | tirx.Bind) for statement in statements)


def _sequence(statements: list[tirx.Stmt]) -> tirx.Stmt:
    if not statements:
        return tirx.Evaluate(0)
    return statements[0] if len(statements) == 1 else tirx.SeqStmt(statements)
