"""Evaluates Relay expressions to Relax: every function call is put in, every binding is a variable of one dataflow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import singledispatchmethod

import tvm
from tvm import relax
from tvm.ir import GenericConst
from tvm.relax import BlockBuilder, Expr

from fusion.constants import constant
from fusion.errors import InvalidModelError, UnsupportedOperatorError
from fusion.frontends.imported import branch_call
from fusion.frontends.origins import Origins
from fusion.frontends.relay.apply import apply
from fusion.frontends.relay.call import dtype_of
from fusion.frontends.relay.program import RelayProgram
from fusion.frontends.relay.scope import BindingScope, Closure, Value, captured, has_more_parts, rebuild, tensors_of
from fusion.frontends.relay.syntax import (
    Constant,
    Expression,
    Field,
    Function,
    FunctionCall,
    GlobalReference,
    If,
    LetBlock,
    OperatorCall,
    OperatorReference,
    Position,
    Reference,
    TupleOf,
)
from fusion.frontends.relay.types import check_value, describe
from fusion.shapes import dims_of, is_static
from fusion.tensors import as_numpy

_DEEPEST = 32
"""Calls of one function within each other: a loop whose conditions are constants ends before. Each takes some 15 frames
of Python's 1000."""
_STEPS_OF_A_BRANCH = 20
"""What making a module takes, in calls."""
_MOST_PARTS = 20_000
"""Tensors and tuples within a tuple: tuples of the one before twice double with every level."""


class Evaluator:
    """One function of Relax in the making: `main`, or a branch that only the run chooses.

    Args:
        program: What it is of.
        imports: For a branch: its parameters by what they stand for in the function around it.
        around: The evaluator of that function.
    """

    def __init__(
        self, program: RelayProgram, imports: Mapping[Expr, Expr] | None = None, around: Evaluator | None = None
    ) -> None:
        self.builder = BlockBuilder()
        self._origins = Origins()
        self._program = program
        self._imports, self._around = imports or {}, around
        self._active: list[Function] = [] if around is None else list(around._active)

    def call(self, closure: Closure, arguments: Sequence[Value], position: Position) -> Value:
        """Return what `closure` computes of `arguments`.

        Raises:
            InvalidModelError: Their number or types are not as its parameters are declared, or its result's is not.
            UnsupportedOperatorError: It calls itself without end, calls too much, or an operator is refused.
        """
        self._program.step(position)
        function = closure.function
        if len(arguments) != len(function.parameters):
            raise InvalidModelError(
                f"a function of {len(function.parameters)} parameters is called with {len(arguments)}",
                where=str(position),
            )
        scope = BindingScope(closure.scope)
        for parameter, argument in zip(function.parameters, arguments, strict=True):
            check_value(argument, parameter.type, f"%{parameter.name}", position)
            scope = scope.bind(parameter.name, argument)
        with self._entered(function, position):
            result = self.evaluate(function.body, scope)
        check_value(result, function.result_type, "the result", function.position)
        return result

    @contextmanager
    def _entered(self, function: Function, position: Position) -> Iterator[None]:
        if sum(function is active for active in self._active) >= _DEEPEST:
            raise UnsupportedOperatorError(
                "a function calls itself without an end that is known before the run",
                where=str(position),
                why=f"after {_DEEPEST} calls, each within the one before, there is another",
            )
        self._active.append(function)
        yield
        self._active.pop()

    @singledispatchmethod
    def evaluate(self, expression: Expression, scope: BindingScope) -> Value:
        """Return the value of `expression` where `scope` binds what it refers to."""
        raise UnsupportedOperatorError(
            f"there is no translation of a {type(expression).__name__}", where=str(expression.position)
        )

    @evaluate.register
    def _block(self, block: LetBlock, scope: BindingScope) -> Value:
        inner = BindingScope(scope)
        for binding in block.bindings:
            inner = inner.bind(binding.name, self.evaluate(binding.value, inner))
        return self.evaluate(block.result, inner)

    @evaluate.register
    def _reference(self, reference: Reference, scope: BindingScope) -> Value:
        value = scope.lookup(reference.name)
        if value is None:
            raise InvalidModelError(f"%{reference.name} is not defined", where=str(reference.position))
        return self.imported(value)

    def imported(self, value: Value) -> Value:
        """Return `value`, each tensor of a function around a branch as the branch's parameter for it."""
        if self._around is None:
            return value
        if isinstance(value, tuple):
            return tuple(self.imported(entry) for entry in value)
        if not isinstance(value, relax.Var):
            return value
        outer = self._around.imported(value)
        return self._imports.get(outer, outer)

    @evaluate.register
    def _global(self, reference: GlobalReference, scope: BindingScope) -> Value:
        function = self._program.functions.get(reference.name)
        if function is None:
            raise InvalidModelError(f"@{reference.name} is not defined", where=str(reference.position))
        return Closure(function, BindingScope())

    @evaluate.register
    def _operator(self, reference: OperatorReference, scope: BindingScope) -> Value:
        return reference

    @evaluate.register
    def _constant(self, expression: Constant, scope: BindingScope) -> Value:
        return constant(expression.array)

    @evaluate.register
    def _function(self, function: Function, scope: BindingScope) -> Value:
        return Closure(function, scope)

    @evaluate.register
    def _tuple(self, expression: TupleOf, scope: BindingScope) -> Value:
        value = tuple(self.evaluate(field, scope) for field in expression.fields)
        if has_more_parts(value, _MOST_PARTS):
            raise UnsupportedOperatorError(
                f"a tuple has more than {_MOST_PARTS:,} parts", where=str(expression.position)
            )
        return value

    @evaluate.register
    def _field(self, expression: Field, scope: BindingScope) -> Value:
        value = self.evaluate(expression.value, scope)
        if not isinstance(value, tuple) or not 0 <= expression.index < len(value):
            raise InvalidModelError(f"there is no field {expression.index}", where=str(expression.position))
        return value[expression.index]

    @evaluate.register
    def _operator_call(self, call: OperatorCall, scope: BindingScope) -> Value:
        self._program.step(call.position)
        arguments = tuple(self.evaluate(argument, scope) for argument in call.arguments)
        return self._apply(call, arguments)

    @evaluate.register
    def _function_call(self, call: FunctionCall, scope: BindingScope) -> Value:
        arguments = tuple(self.evaluate(argument, scope) for argument in call.arguments)
        function = self.evaluate(call.function, scope)
        if isinstance(function, OperatorReference):
            operator = OperatorCall(call.position, function.name, call.arguments, call.attributes)
            return self._apply(operator, arguments)
        if not isinstance(function, Closure):
            raise InvalidModelError("what is called is no function", where=str(call.position))
        return self.call(function, arguments, call.position)

    def _apply(self, call: OperatorCall, arguments: Sequence[Value]) -> Value:
        result = apply(call, tuple(arguments), self.builder)
        for tensor in tensors_of(result):
            self._origins.note(tensor, f"{call.operator}, {call.position}")
        return result

    @evaluate.register
    def _if(self, expression: If, scope: BindingScope) -> Value:
        condition = self.evaluate(expression.condition, scope)
        if (
            not isinstance(condition, Expr)
            or dtype_of(condition) != "bool"
            or set(dims_of(condition.ty.shape) or ()) - {1}
        ):
            raise InvalidModelError("the condition is not one bool", where=str(expression.position))
        if isinstance(condition, GenericConst):
            taken = expression.then if as_numpy(condition.value).item() else expression.otherwise
            return self.evaluate(taken, scope)
        return self._choose(condition, expression, scope)

    def _choose(self, condition: Expr, expression: If, scope: BindingScope) -> Value:
        """Evaluate both branches as functions of what they read of this one."""
        outer = [self.imported(variable) for variable in captured((expression.then, expression.otherwise), scope)]
        reads = [value for value in dict.fromkeys(outer) if isinstance(value, Expr)]
        (then, value), (otherwise, other) = (
            self._branch(block, scope, reads) for block in (expression.then, expression.otherwise)
        )
        tensors = tensors_of(value)
        if describe(value) != describe(other) or not all(map(is_static, tensors)):
            raise UnsupportedOperatorError(
                "the branches of an `if` compute tensors of different or unknown types",
                where=str(expression.position),
                why=f"one computes {describe(value)}, the other {describe(other)}",
            )
        types = [tensor.ty for tensor in tensors]
        kind = types[0] if len(types) == 1 else relax.TupleType(types)
        condition = self.builder.emit(relax.op.reshape(condition, ()))
        result = self.builder.emit(branch_call(condition, then, otherwise, reads, kind))
        items = (self.builder.emit(relax.TupleGetItem(result, index)) for index in range(len(types)))
        return rebuild(value, iter([result]) if len(types) == 1 else items)

    def _branch(self, block: LetBlock, scope: BindingScope, reads: Sequence[Expr]) -> tuple[str, Value]:
        """Make a module of `block` that takes `reads`; return its name and what it computes."""
        self._program.step(block.position, _STEPS_OF_A_BRANCH)
        name = f"branch_{next(self._program.names)}"
        parameters = {tensor: relax.Var(f"read_{index}", tensor.ty) for index, tensor in enumerate(reads)}
        inner = Evaluator(self._program, parameters, self)
        mod, value = inner.make_main(list(parameters.values()), lambda: inner.evaluate(block, scope))
        self._program.branches[name] = mod
        return name, value

    def make_main(
        self, parameters: Sequence[relax.Var], compute: Callable[[], Value]
    ) -> tuple[tvm.IRModule, Value]:
        """Return a module whose `main` takes `parameters` and returns the tensors of what `compute` returns, and that.

        Raises:
            InvalidModelError: `compute` returns a function.
        """
        with self.builder.function("main", parameters):
            with self.builder.dataflow():
                value = compute()
                tensors = tensors_of(value)
                result = self.builder.emit_output(tensors[0] if len(tensors) == 1 else relax.Tuple(tensors))
            self.builder.emit_func_output(result)
        return self._origins.attach(relax.transform.DeadCodeElimination()(self.builder.get())), value
