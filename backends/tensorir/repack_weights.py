"""Brings the constant weights of kernels into the order that their chosen loops read."""

from __future__ import annotations

from collections.abc import Mapping

import tvm
from tvm import relax
from tvm.ir import GenericConst, GlobalVar
from tvm.relax.expr_functor import PyExprMutator, mutator

from backends.tensorir.result import Repack
from fusion.bindings import call_arguments, callee


def repack_weights(mod: tvm.IRModule, repacks: Mapping[GlobalVar, Repack]) -> tvm.IRModule:
    """Return `mod` with the constants that calls of these kernels in `main` take at `Repack.parameters` repacked.

    `call_tir(conv, (x, w))`  ->  `call_tir(conv, (x, G w G^T))`
    """
    if not repacks:
        return mod
    # A kernel's name carries its type, which changes with the shape of the weights: each gets a new one.
    kept = {symbol: func for symbol, func in mod.functions.items() if symbol not in repacks}
    builder = relax.BlockBuilder(tvm.IRModule(kept, attrs=mod.attrs))
    symbols = {symbol: builder.add_func(mod[symbol], symbol.name_hint) for symbol in repacks}
    result = builder.get()
    result["main"] = _Repacker(repacks, symbols).visit_expr(mod["main"])
    return result


@mutator
class _Repacker(PyExprMutator):  # type: ignore[misc]  # TVM's decorator is untyped
    def __init__(self, repacks: Mapping[GlobalVar, Repack], symbols: Mapping[GlobalVar, GlobalVar]) -> None:
        super().__init__()
        self.repacks, self.symbols = repacks, symbols

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Replace the name and the constants in a call of a kernel."""
        symbol = callee(call) if call.args else None
        repack = self.repacks.get(symbol) if isinstance(symbol, GlobalVar) else None
        if repack is None:
            return call
        arguments = call_arguments(call)
        for place in repack.parameters:
            weight = arguments[place]
            assert isinstance(weight, GenericConst), "the lowering of an anchor packs constants only"
            arguments[place] = relax.const(tvm.runtime.tensor(repack.pack(weight.value.numpy())))
        return relax.Call(call.op, [self.symbols[symbol], relax.Tuple(arguments)], call.attrs, call.ty_args)
