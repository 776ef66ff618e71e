"""What the function `main` of a model and its branches have in common while they are made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count

import tvm

from fusion.errors import UnsupportedOperatorError
from fusion.frontends.relay.syntax import Function, Position

_MOST_STEPS = 200_000
"""Calls of operators and functions in all, some 5 s of CPU: functions that each call the next one twice double with
every level. A network of 20,000 operators, each in a function of its own, takes 40,000."""


@dataclass
class RelayProgram:
    """The functions of a module, and the branches that came of them.

    Attributes:
        functions: Of the module, by name.
        branches: Filled with those of the whole model, inner ones before those they are in.
        names: Numbers that make names unique in the whole model.
        steps: How many calls there were.
    """

    functions: Mapping[str, Function]
    branches: dict[str, tvm.IRModule] = field(default_factory=dict)
    names: Iterator[int] = field(default_factory=count)
    steps: int = 0

    def step(self, position: Position, steps: int = 1) -> None:
        """Count what stands at `position`.

        Raises:
            UnsupportedOperatorError: There were too many.
        """
        self.steps += steps
        if self.steps > _MOST_STEPS:
            raise UnsupportedOperatorError(
                f"functions, put in where they are called, call more than {_MOST_STEPS:,} operators and functions",
                where=str(position),
                hint="call each function once and bind its result",
            )
