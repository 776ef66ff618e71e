"""Views of tensors in `main`, in the form that the virtual machine gets."""

from __future__ import annotations

from tvm import relax

from fusion.bindings import Bindings, call_name, data_of


def root_of(bindings: Bindings, expr: relax.Expr) -> relax.Expr:
    """Follow aliases and reshapes to the variable that owns the memory."""
    expr = bindings.resolve(expr)
    while isinstance(expr, relax.Var) and is_reshape(bindings.values.get(expr)):
        expr = bindings.resolve(data_of(bindings.values[expr]))
    return expr


def is_extern(value: relax.Expr | None, name: str) -> bool:
    """Return whether `value` is a call of the packed function `name`."""
    return (
        isinstance(value, relax.Call)
        and isinstance(value.op, relax.ExternFunc)
        and str(value.op.global_symbol) == name
    )


def is_reshape(value: relax.Expr | None) -> bool:
    """Return whether `value` is a view of its first argument."""
    return call_name(value) == "reshape" or is_extern(value, "vm.builtin.reshape")
