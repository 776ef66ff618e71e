"""What a pattern matched as a chain of calls: an operator, and what follows it elementwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from tvm import relax
from tvm.ir import GenericConst

from fusion.bindings import Bindings, call_name
from fusion.declined import Declined
from fusion.shapes import known_extents

_DTYPE = "float32"


@dataclass(frozen=True, eq=False)
class ChainCall:
    """A call of the chain.

    Attributes:
        call: It.
        others: Its operands that are tensors, but the result of the call before.
    """

    call: relax.Call
    others: tuple[relax.Expr, ...]

    @property
    def operator(self) -> str:
        return call_name(self.call)


@dataclass(frozen=True, eq=False)
class CallChain:
    """Calls, each of which reads the result of the one before.

    Attributes:
        links: In the order they run; the first reads nothing of the others.
        params: What is read from outside and is no constant.
    """

    links: tuple[ChainCall, ...]
    params: tuple[relax.Var, ...]

    @staticmethod
    def of(function: relax.Function) -> CallChain:
        """Return the chain that a function is.

        Raises:
            Declined: It is none.
        """
        bindings = Bindings.of(function)
        result = bindings.resolve(bindings.result)
        return CallChain(_links(bindings.values, result), tuple(function.params))

    @staticmethod
    def matched(values: Mapping[relax.Var, relax.Expr], last: relax.Expr) -> CallChain:
        """Return the chain of some bindings that ends with the value `last`.

        Raises:
            Declined: They are none.
        """
        links = _links(values, last)
        read = (other for link in links for other in link.others if isinstance(other, relax.Var))
        return CallChain(links, tuple(dict.fromkeys(read)))

    def source(self, operand: relax.Expr) -> int:
        """Return the position of an operand among the parameters; -1 of a constant."""
        if isinstance(operand, GenericConst):
            return -1
        return next(place for place, param in enumerate(self.params) if param.same_as(operand))


def _links(values: Mapping[relax.Var, relax.Expr], last: relax.Expr) -> tuple[ChainCall, ...]:
    links: list[ChainCall] = []
    value: relax.Expr | None = values.get(last, last)
    while value is not None:
        if not isinstance(value, relax.Call):
            raise Declined("it is no chain of operators")
        tensors = [arg for arg in value.args if isinstance(arg.ty, relax.TensorType)]
        before = [arg for arg in tensors if arg in values]
        if len(before) > 1:
            raise Declined("it reads the result before it twice")
        links.append(ChainCall(value, tuple(arg for arg in tensors if arg not in before)))
        value = values[before[0]] if before else None
    return tuple(reversed(links))


def shape_of(value: relax.Expr) -> tuple[int, ...]:
    """Return the shape of a tensor that oneDNN takes.

    Raises:
        Declined: It does not.
    """
    kind = value.ty
    extents = known_extents(kind.shape) if isinstance(kind, relax.TensorType) else None
    if extents is None:
        raise Declined("only the run knows its shapes")
    if str(kind.dtype) != _DTYPE:
        raise Declined(f"only {_DTYPE} is taken")
    if not extents or 0 in extents:
        raise Declined("it has no axes or no elements")
    return extents


def numbers_of(attribute: Sequence[object]) -> tuple[int, ...]:
    """Return an attribute that is a list of integers."""
    return tuple(int(item) for item in attribute)  # type: ignore[call-overload]


def array_of(value: GenericConst) -> np.ndarray:
    """Return a constant."""
    found: np.ndarray = value.value.numpy()
    return found
