"""A region as the sequence of operations that oneDNN runs for it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from tvm import relax

from backends.onednn.api import OneDnnError, onednn
from backends.onednn.call import Described, ReadCall, extents_of
from backends.onednn.operation import PrimitiveSequence
from backends.onednn.primitives import describe
from backends.onednn.read import PRODUCTS, follow, read_call
from fusion.bindings import Bindings, call_name, variables
from fusion.declined import Declined


def why_not_taken(call: relax.Call) -> str:
    """Return why oneDNN does not compute a call; "" where it does."""
    numbers = {var: number for number, var in enumerate(dict.fromkeys(variables(call)))}
    try:
        for described in read_call(ReadCall(call, numbers, len(numbers))):
            describe(onednn(), described.operation)
    except (Declined, OneDnnError) as reason:
        return str(reason)
    return ""


def read_region(function: relax.Function) -> tuple[PrimitiveSequence, dict[tuple[int, int], np.ndarray]]:
    """Return what oneDNN computes for a function of calls that it takes, and its constants.

    Raises:
        Declined: It does not take one of them.
    """
    reading = _Reading(Bindings.of(function), {var: number for number, var in enumerate(function.params)})
    for var, call in reading.bindings.values.items():
        if var not in reading.followers and isinstance(call, relax.Call):
            reading.read(var, call)
    results = tuple(reading.numbers[result] for result in reading.bindings.results())
    operations = tuple(each.operation for each in reading.made)
    constants = {(at, argument): a for at, each in enumerate(reading.made) for argument, a in each.constants.items()}
    return PrimitiveSequence(tuple(map(extents_of, function.params)), operations, results), constants


@dataclass(eq=False)
class _Reading:
    """What was read of a region so far.

    Attributes:
        bindings: Its own.
        numbers: Of values.
        made: Operations.
        followers: What those compute that began with another call.
    """

    bindings: Bindings
    numbers: dict[relax.Var, int]
    made: list[Described] = field(default_factory=list)
    followers: set[relax.Var] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._inputs = len(self.numbers)

    def read(self, var: relax.Var, call: relax.Call) -> None:
        """Read a call, and those behind it that follow in its primitive."""
        described = read_call(self._reads(call))
        if call_name(call) in PRODUCTS:
            var, described[0] = self._followed(var, described[0])
        self.made += described
        self.numbers[var] = self._next_number - 1

    @property
    def _next_number(self) -> int:
        return self._inputs + len(self.made)

    def _reads(self, call: relax.Call) -> ReadCall:
        return ReadCall(call, self.numbers, self._next_number)

    def _followed(self, var: relax.Var, product: Described) -> tuple[relax.Var, Described]:
        """Return a `product`, which makes `var`, with all that follows in its primitive, and what that makes."""
        while len(readers := self.bindings.readers[var]) == 1 and var not in self.bindings.returned:
            call = self.bindings.values[readers[0]]
            if not isinstance(call, relax.Call):
                break
            try:
                following = follow(product, self._reads(call), var)
                describe(onednn(), following.operation)
            except (Declined, OneDnnError):
                break
            self.followers.add(readers[0])
            var, product = readers[0], following
        return var, product
