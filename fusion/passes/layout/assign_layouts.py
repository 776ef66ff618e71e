"""The pass that chooses the layout of every tensor, so that convolutions run channels-last and most transposes
vanish."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import tvm
from tvm import relax
from tvm.ir import GenericConst

from backends.backend import LayoutPolicy
from fusion.bindings import Bindings, call_name
from fusion.declined import Declined, Declines
from fusion.facts import PassResult, TellingPass
from fusion.passes.layout import order as orders
from fusion.passes.layout.call_context import CallContext
from fusion.passes.layout.factored import Factored
from fusion.passes.layout.factored_rules import FACTORED_RULES
from fusion.passes.layout.placed import Placed, move, row_major
from fusion.passes.layout.pointwise import POINTWISE
from fusion.passes.layout.preferences import Preference, find_preferences
from fusion.passes.layout.rules import RULES
from fusion.shapes import is_static

Value: TypeAlias = Placed | Factored | list[Placed] | relax.Expr  # the last: not a tensor of static shape, left alone


@dataclass(frozen=True)
class StoredIn:
    """Which variables hold the values of the old `main`.

    Attributes:
        variables: Name of a variable of the old `main` -> names of the variables that hold its value now.
        as_they_lie: Those of the old `main` that products with tensors as they lie compute (`pointwise`).
        declines: The layout rules that declined, with their reasons.
    """

    variables: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    as_they_lie: tuple[str, ...] = ()
    declines: Declines = field(default_factory=Declines)


@dataclass(frozen=True)
class AssignLayouts(TellingPass[StoredIn]):
    """NCHW graph  ->  the same graph on channels-last storage.

    Every tensor is tracked as (stored tensor, order of its axes). Operators with a rule run in the order that their
    operand has; transposes and reshapes only rename axes, or factors of them; data moves where two orders meet.
    `conv2d` needs NHWC, unless it is 1x1 or depthwise and its image is row-major. Operators without a rule, and the
    outputs of the function, need row-major order. Data that has to move goes to the order that its readers prefer.

        z = relu(conv2d(x: NCHW))
        ->  t = permute_dims(x, NHWC); z = relu(conv2d(t: NHWC)); permute_dims(z, NCHW)

    Attributes:
        policy: The costs of orders.
        reads_as_they_lie: Whether products may read tensors as they lie, where `pointwise` says that they cost less.
    """

    policy: LayoutPolicy
    reads_as_they_lie: bool = True
    name: str = "assign_layouts"

    def run(self, mod: tvm.IRModule) -> PassResult[StoredIn]:
        """Return the module on chosen storage orders, and what holds each of its variables."""
        main, declines = mod["main"], Declines()
        builder = relax.BlockBuilder()
        walk = _Walk(builder, self, find_preferences(main, self.policy), declines)
        with builder.function("main", list(main.params)):
            with builder.dataflow():
                result = builder.emit_output(walk.run(main))
            builder.emit_func_output(result)
        rebuilt = mod.clone()
        rebuilt["main"] = builder.finalize()["main"].with_attrs(dict(main.attrs or {}))
        names = {var.name: _names(value) for var, value in walk.placed.items()}
        stored = StoredIn(names, tuple(walk.as_they_lie), declines)
        return PassResult(relax.transform.DeadCodeElimination(["main"])(rebuilt), stored)


@dataclass
class _Walk:
    """One pass over the bindings; `placed` knows where each variable of the old function lives, `as_they_lie` what
    products with tensors as they lie compute."""

    builder: relax.BlockBuilder
    options: AssignLayouts
    preferences: dict[relax.Var, Preference]
    declines: Declines
    placed: dict[relax.Var, Value] = field(default_factory=dict)
    as_they_lie: list[str] = field(default_factory=list)

    def run(self, main: relax.Function) -> relax.Expr:
        for binding in Bindings.of(main).all:
            if isinstance(binding, relax.MatchCast):
                cast = self.builder.match_cast(self._row_major(binding.value), binding.ty)
                self.placed[binding.var] = row_major(cast) if is_static(cast) else cast
            else:
                self.placed[binding.var] = self._visit(binding.value, binding.var)
        return self._row_major(main.body.body)

    def _visit(self, value: relax.Expr, result: relax.Var | None = None) -> Value:
        """Return what holds `value`, which is bound to `result`."""
        if isinstance(value, relax.Tuple):
            items = [self._visit(item) for item in value.fields]
            return items if all(isinstance(item, Placed) for item in items) else self._row_major(value)
        if isinstance(value, relax.TupleGetItem):
            whole = self._value(value.tuple_value)
            return whole[value.index] if isinstance(whole, list) else relax.TupleGetItem(whole, value.index)
        if isinstance(value, relax.Var | GenericConst):
            return self._value(value)
        if isinstance(value.ty, relax.TensorType) and not is_static(value):
            return self._plain(value)
        name = "" if result is None else str(result.name)
        context = CallContext(self.builder, self.options.policy, self.preferences.get(result), name, self.declines)
        ways = self._in_parts, self._as_product, self._in_order
        return next((made for way in ways if (made := way(context, value)) is not None), None) or self._plain(value)

    def _in_parts(self, context: CallContext, value: relax.Expr) -> Value | None:
        """Run an operator on tensors of which one lies in parts; None where none does or it has no rule for that."""
        rule = FACTORED_RULES.get(call_name(value))
        operands = self._operands(value, self._value) if rule else None
        apart = next((operand for operand in operands or () if isinstance(operand, Factored)), None)
        if rule is None or operands is None or apart is None or not rule.concerns(context, apart):
            return None
        try:
            return rule.run(context, value, operands)
        except Declined as reason:
            context.note(value, "its operand moves", reason)
            return None

    def _as_product(self, context: CallContext, value: relax.Expr) -> Value | None:
        """Run an operator as a product with data as it lies; None where that is no such operator or costs more."""
        rule = POINTWISE.get(call_name(value)) if self.options.reads_as_they_lie else None
        operands = self._operands(value, self._settled) if rule else None
        if rule is None or not operands:
            return None
        data, weight = operands
        if not isinstance(data, Placed) or not isinstance(weight, Placed) or not rule.concerns(value, data):
            return None
        try:
            product = rule.build(context, value, data, weight)
        except Declined as reason:
            context.note(value, rule.what, reason)
            return None
        self.as_they_lie.append(context.result)
        return product

    def _in_order(self, context: CallContext, value: relax.Expr) -> Value | None:
        """Run an operator on the orders that its operands have; None where it has no rule or that declines."""
        rule = RULES.get(call_name(value))
        operands = self._operands(value, self._settled) if rule else None
        placed = [operand for operand in operands or () if isinstance(operand, Placed)]
        if rule is None or not placed:
            return None
        try:
            return rule(context, value, placed)
        except Declined as reason:
            if not all(operand.is_row_major for operand in placed):
                context.note(value, "its operands move to row-major storage", reason)
            return None

    def _plain(self, value: relax.Expr) -> Value:
        """Run an operator that has no rule on row-major operands."""
        result = self.builder.emit(self._row_major(value))
        if isinstance(result.ty, relax.TupleType):
            fields = [self.builder.emit(relax.TupleGetItem(result, index)) for index in range(len(result.ty.fields))]
            return [row_major(item) for item in fields] if all(is_static(f) for f in fields) else result
        return row_major(result) if is_static(result) else result

    def _operands(self, call: relax.Call, holder: Callable[[relax.Expr], Value]) -> list[Placed | Factored] | None:
        """Return what holds the tensor operands of a call, those inside tuples included, or None where one has no
        static shape."""
        tensors: list[Placed | Factored] = []
        for arg in call.args:
            fields = arg.fields if isinstance(arg, relax.Tuple) else [arg]
            values = [holder(item) for item in fields if isinstance(item.ty, relax.TensorType | relax.TupleType)]
            for value in values:
                if not isinstance(value, Placed | Factored | list):
                    return None
                tensors += value if isinstance(value, list) else [value]
        return tensors

    def _settled(self, expr: relax.Expr) -> Value:
        """Return what holds `expr`; where that lies in parts, it moves for all who read it from here on."""
        value = self._value(expr)
        if isinstance(value, Factored):
            value = value.settled(self.builder, value.wanted_order(self.preferences.get(expr)))
            self.placed[expr] = value
        return value

    def _value(self, expr: relax.Expr) -> Value:
        if expr in self.placed:
            return self.placed[expr]
        return row_major(expr) if is_static(expr) else expr

    def _row_major(self, expr: relax.Expr) -> relax.Expr:
        """Return `expr` over the new variables, each tensor moved to row-major storage."""
        if isinstance(expr, relax.Var) and expr in self.placed:
            value = self._settled(expr)
            if isinstance(value, list):
                return relax.Tuple([self._settle(item) for item in value])
            return self._settle(value) if isinstance(value, Placed) else value
        if isinstance(expr, relax.Tuple):
            return relax.Tuple([self._row_major(item) for item in expr.fields])
        if isinstance(expr, relax.TupleGetItem):
            item = self._visit(expr)
            return self._settle(item) if isinstance(item, Placed) else item
        if isinstance(expr, relax.Call):
            return relax.Call(expr.op, [self._row_major(arg) for arg in expr.args], expr.attrs, expr.ty_args)
        return expr

    def _settle(self, tensor: Placed) -> relax.Expr:
        return move(self.builder, tensor, orders.identity(len(tensor.shape)))


def _names(value: Value) -> tuple[str, ...]:
    """Return the names of the variables behind `value`."""
    items = value if isinstance(value, list) else [value]
    held = (item.stored if isinstance(item, Placed | Factored) else item for item in items)
    return tuple(expr.name for expr in held if isinstance(expr, relax.Var))
