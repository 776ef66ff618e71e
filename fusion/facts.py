"""What passes tell of what they did, beside the module that they return."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Generic, TypeVar

import tvm

Fact = TypeVar("Fact")


@dataclass(frozen=True)
class PassResult(Generic[Fact]):
    """What a pass made of a module.

    Attributes:
        mod: The module.
        fact: What later passes, or reports, need to know of how it was made.
        failures: What failed inside of it and was done without, a sentence of `fusion.failures.report` each.
    """

    mod: tvm.IRModule
    fact: Fact
    failures: tuple[str, ...] = ()


class TellingPass(ABC, Generic[Fact]):
    """A pass that has more to tell than the module it returns; a new value at every call, so that it keeps none."""

    @abstractmethod
    def run(self, mod: tvm.IRModule) -> PassResult[Fact]:
        """Return what this pass makes of `mod`, and what it tells of that."""

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        return self.run(mod).mod


@dataclass(frozen=True)
class Facts:
    """What the passes over one module told, in their order."""

    told: tuple[object, ...] = ()

    def add(self, fact: object) -> Facts:
        """Return these facts and one more."""
        return Facts((*self.told, fact))

    def get(self, kind: type[Fact]) -> Fact:
        """Return the last fact of class `kind`; an empty one where no pass told any."""
        found = [fact for fact in self.told if isinstance(fact, kind)]
        return found[-1] if found else kind()
