"""What passes report beside the module that they return."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Generic, TypeVar

import tvm

Fact = TypeVar("Fact")


@dataclass(frozen=True)
class PassResult(Generic[Fact]):
    """The result of a pass.

    Attributes:
        mod: The module.
        fact: What the pass reports to later passes and to `explain()`.
        failures: What failed inside the pass and was skipped, a sentence of `fusion.failures.report` each.
    """

    mod: tvm.IRModule
    fact: Fact
    failures: tuple[str, ...] = ()


class TellingPass(ABC, Generic[Fact]):
    """A pass that reports a fact beside the module. The fact is part of the result, so the pass itself has no state."""

    @abstractmethod
    def run(self, mod: tvm.IRModule) -> PassResult[Fact]:
        """Return the new module and the fact; `mod` stays as it is."""

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        return self.run(mod).mod


@dataclass(frozen=True)
class Facts:
    """The facts that the passes over one module reported, in order."""

    told: tuple[object, ...] = ()

    def add(self, fact: object) -> Facts:
        """Return these facts and one more."""
        return Facts((*self.told, fact))

    def get(self, kind: type[Fact]) -> Fact:
        """Return the last fact of class `kind`; `kind()` if no pass reported one."""
        found = [fact for fact in self.told if isinstance(fact, kind)]
        return found[-1] if found else kind()
