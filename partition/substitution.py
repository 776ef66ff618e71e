"""Replaces variables and global functions in a Relax expression."""

from __future__ import annotations

from collections.abc import Mapping

from tvm import relax
from tvm.ir import GlobalVar


def substitute(expr: relax.Expr, env: Mapping[relax.Var | GlobalVar, relax.Expr]) -> relax.Expr:
    """Return `expr` with the variables that `env` has replaced, inside tuples and calls too."""
    if isinstance(expr, relax.Var | GlobalVar):
        return env.get(expr, expr)
    if isinstance(expr, relax.Tuple):
        return relax.Tuple([substitute(field, env) for field in expr.fields])
    if isinstance(expr, relax.TupleGetItem):
        return relax.TupleGetItem(substitute(expr.tuple_value, env), expr.index)
    if isinstance(expr, relax.Call):
        return relax.Call(expr.op, [substitute(arg, env) for arg in expr.args], expr.attrs, expr.ty_args)
    return expr
