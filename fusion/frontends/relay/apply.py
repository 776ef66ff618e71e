"""Applies one operator: folds it where its operands are known, or emits its translation."""

from __future__ import annotations

from tvm import relax
from tvm.ir import GenericConst
from tvm.relax import BlockBuilder, Expr

from fusion.constants import constant
from fusion.declined import Declined
from fusion.errors import FusionError, UnsupportedOperatorError
from fusion.frontends.relay.call import Call, Operand
from fusion.frontends.relay.fold import fold
from fusion.frontends.relay.registry import translation_of
from fusion.frontends.relay.scope import Closure, Value
from fusion.frontends.relay.syntax import OperatorCall, OperatorReference


def apply(called: OperatorCall, arguments: tuple[Value, ...], builder: BlockBuilder) -> Value:
    """Return the result of an operator on `arguments`: a tensor, a constant where it could be folded, or a tuple.

    Raises:
        UnsupportedOperatorError: Its translation refuses the call.
    """
    try:
        call = Call(called.operator, tuple(map(_operand, arguments)), called.attributes, called.position, builder)
        folded = fold(call)
        return constant(folded) if folded is not None else _translated(call)
    except (FusionError, RecursionError):
        raise
    except Exception as error:  # TVM raises whatever its checks raise; none of them may end the import untyped
        text = str(error).strip().splitlines()
        raise UnsupportedOperatorError(
            f"{called.operator} cannot be translated",
            where=f"{called.operator}, {called.position}",
            why=text[-1][:300] if text else type(error).__name__,
        ) from error


def _operand(value: Value) -> Operand:
    if isinstance(value, tuple):
        return tuple(map(_operand, value))
    if isinstance(value, Closure | OperatorReference):
        raise Declined("an operand is a function")
    return value


def _translated(call: Call) -> Value:
    translation = translation_of(call.operator)
    if translation is None:
        raise Declined("there is no translation of it")
    result = translation(call)
    return _bound(result, call) if isinstance(result, Expr) else tuple(_bound(entry, call) for entry in result)


def _bound(expr: Expr, call: Call) -> Value:
    """Return `expr` as a variable, or as it is where nothing is to be computed; several results as a tuple."""
    if isinstance(expr, GenericConst | relax.Var):
        return expr
    variable = call.emit(expr)
    if isinstance(variable.ty, relax.TupleType):
        return tuple(call.emit(relax.TupleGetItem(variable, index)) for index in range(len(variable.ty.fields)))
    if not isinstance(variable.ty, relax.TensorType):
        raise Declined("the result is no tensor")
    return variable
