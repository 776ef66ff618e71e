"""Kernels that are told the sizes they read: by the shapes of what they take, as far as these tell them, else by an
input of the model that calls pass beside, as the check of indices reads the size of what they are in.

    checked = call_tir(check_index, indices)    ->    checked = call_tir(check_index, (indices, x))
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce

from tvm import relax, tirx
from tvm.ir import GlobalVar, Var
from tvm.s_tir.stmt import SBlock

from backends.tensorir.bare_symbols import bare_symbols, with_bare_symbols
from backends.tensorir.symbols import symbols_of
from fusion.bindings import call_arguments, callee, is_call_tir
from fusion.declined import Declined
from fusion.extents import DerivedSize
from fusion.structural import find, map_nodes
from fusion.symbolic.open_dims import OpenDims


@dataclass
class ToldSizes:
    """Who tells the kernels of a module their sizes.

    Attributes:
        main: The function that calls them, which has sizes that follow from those of its inputs as expressions.
        symbols: Those that kernels may have.
        beside: Which inputs calls of a kernel pass it beside what it takes, by its name.
    """

    main: relax.Function
    dims: OpenDims
    symbols: Collection[str]
    beside: dict[str, Sequence[relax.Var]] = field(default_factory=dict, init=False)
    _symbols: dict[str, GlobalVar] = field(default_factory=dict, init=False)

    def kernel(self, name: str, kernel: tirx.PrimFunc) -> tirx.PrimFunc:
        """Return `kernel` told all that it reads: it may take inputs behind its operands, of which it reads nothing,
        and computes sizes that follow from others.

        Raises:
            Declined: No input has one among its extents, or it writes into what it takes.
        """
        told = self._computed(kernel, symbols_of(kernel))
        if unknown := {var.name for var in self._unknown(told)}:
            wanted = self.dims.sources(unknown).intersection(self.dims.symbols)
            having = {name: next((each for each in self._inputs if name in _names(each)), None) for name in wanted}
            self.beside[name] = [each for each in self._inputs if any(each.same_as(other) for other in having.values())]
            if name not in self._operands:
                raise Declined(f"{name} depends on {', '.join(sorted(unknown))}, and writes into what it takes")
            taking = self._taking(kernel, self._operands[name], self.beside[name])
            told = self._computed(taking, bare_symbols(taking))  # not those that it has in a product of sizes alone
            unknown = {var.name for var in self._unknown(told)}
        if unknown:
            raise Declined(f"{name} depends on {', '.join(sorted(unknown))}, which no input has among its extents")
        if name in self.beside:
            self._symbols[name] = relax.BlockBuilder().add_func(told, name)
        return told

    def symbol(self, called: GlobalVar) -> GlobalVar:
        """Return the symbol of a kernel that `main` called: the type of one says what it takes."""
        return self._symbols.get(called.name_hint, called)

    def telling(self) -> relax.Function:
        """Return `main` whose calls pass what kernels take beside."""

        def passing(call: relax.Call) -> relax.Call:
            more = self.beside.get(callee(call).name_hint, ()) if is_call_tir(call) else ()
            if not more:
                return call
            given = relax.Tuple([*call_arguments(call), *more])
            return relax.Call(call.op, [self.symbol(callee(call)), given, *call.args[2:]], call.attrs, call.ty_args)

        return map_nodes(self.main, (relax.Call, passing)) if self.beside else self.main

    @cached_property
    def _inputs(self) -> Sequence[relax.Var]:
        return tuple(self.main.params[: len(self.dims.inputs)])

    @cached_property
    def _operands(self) -> Mapping[str, int]:
        """How many tensors each kernel takes before its results, of those that write into none."""
        calls = filter(is_call_tir, find(self.main, relax.Call))
        return {callee(call).name_hint: len(call_arguments(call)) for call in calls}

    def _unknown(self, kernel: tirx.PrimFunc) -> set[Var]:
        """Return the sizes that `kernel` reads and is not told."""
        bare = with_bare_symbols(kernel)
        told = {var.name for var in bare_symbols(bare)}
        return {var for var in _read(bare, self.symbols) if var.name not in told}

    def _computed(self, kernel: tirx.PrimFunc, symbols: Collection[Var]) -> tirx.PrimFunc:
        """Return `kernel` with expressions of the `symbols` that it is told in place of sizes that follow from them."""
        told = {var.name: var for var in symbols}
        for size in reversed(_following(self.dims.relations, set(told))):
            if any(var.name == size.symbol for var in _read(kernel, self.symbols)):
                known = {symbol: told.get(symbol, Var(symbol, "int64")) for symbol in _parts(size)}
                kernel = _computing(kernel, size, known)
        return kernel

    def _taking(self, kernel: tirx.PrimFunc, operands: int, more: Sequence[relax.Var]) -> tirx.PrimFunc:
        """Return `kernel` that takes inputs behind its operands."""
        own = {var.name: var for var in (*self._unknown(kernel), *symbols_of(kernel))}
        buffers = []
        for each in more:
            dims = [map_nodes(dim, (Var, lambda var: own.setdefault(var.name, var))) for dim in each.ty.shape.values]
            buffers.append(tirx.decl_buffer(dims, str(each.ty.dtype.dtype), each.name))
        params = [*kernel.params[:operands], *buffers, *kernel.params[operands:]]
        return tirx.PrimFunc(params, kernel.body, kernel.ret_type, kernel.attrs)


def _names(value: relax.Var) -> set[str]:
    """Return the symbols that are extents of an input."""
    return {dim.name for dim in value.ty.shape.values if isinstance(dim, Var)}


def _following(relations: Sequence[DerivedSize], known: set[str]) -> list[DerivedSize]:
    """Return by which of `relations` sizes follow from those `known`, each from these and from those before it."""
    found = list[DerivedSize]()
    while True:
        more = [size for size in relations if size.symbol not in known and known.issuperset(_parts(size))]
        if not more:
            return found
        found.append(more[0])
        known.add(more[0].symbol)


def _parts(size: DerivedSize) -> set[str]:
    return {symbol for part in size.parts for symbol in part.symbols}


def _read(kernel: tirx.PrimFunc, symbols: Collection[str]) -> set[Var]:
    own = {loop.loop_var for loop in find(kernel.body, tirx.For)}
    own |= {each.var for block in find(kernel.body, SBlock) for each in block.iter_vars}
    return {var for var in find(kernel.body, Var) if var.name in symbols} - own


def _computing(kernel: tirx.PrimFunc, size: DerivedSize, known: Mapping[str, Var]) -> tirx.PrimFunc:
    """Return `kernel` with the expression of `size` in place of it."""
    total = tirx.const(0, "int64")
    for part in size.parts:
        product = reduce(lambda a, b: a * b, (known[symbol] for symbol in part.symbols), tirx.const(1, "int64"))
        total = total + product * part.coefficient + part.constant
    value = total if size.divisor == 1 else tirx.floordiv(total, size.divisor)
    if size.most:
        value = tirx.min(value, tirx.const(size.most, "int64"))
    return map_nodes(kernel, (Var, lambda var: value if var.name == size.symbol else var))
